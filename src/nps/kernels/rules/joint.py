"""Step 4 on a GPU for few rows: one product for all rules, other rules' hidden layers set to zero.

The products are torch's, with kernels in place of the operations between them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nps.kernels.rules.grouped import Size
from nps.kernels.rules.inputs import add_product, product
from nps.kernels.rules.launch import Launch, Space, address, parts, power


class Joint:
    """The launches at one size; parts of a buffer are those of `Grouped`."""

    def __init__(self, size: Size, tf32: bool) -> None:
        lead, t, n, _, h, d = size
        s, self.size = size.s, size
        self.parts: dict[str, tuple[int, ...]] = {}
        self.back_parts = {"to_rule": (*lead, t, n)}
        rows = 16 if s * t <= 4096 else 32  # few enough to keep all processors busy
        grid, sizes = (parts(s * t, rows), n), {"H": h, "HP": power(h), "ROWS": rows}
        self.hide = Launch("hide", grid, (s * t, n), sizes)
        self.blocks = parts(t, rows)
        sizes = {"H": h, "D": d, "HP": power(h), "DP": power(d), "ROWS": rows}
        self.expose = Launch("expose", (s * self.blocks, n), (t, self.blocks, n), sizes)

    def forward(
        self, stream: int, space: Space, weights: tuple[Tensor, ...]
    ) -> tuple[Any, tuple[Tensor, ...]]:
        """The chosen rules' outputs without their bias; tensors to keep beside the buffer."""
        weight_in, bias_in, weight_out, _ = weights
        lead, _, n, i, h, d = self.size
        side_by_side = weight_in.transpose(-3, -2).reshape(*lead, i, n * h)
        before = add_product(bias_in.reshape(*lead, 1, n * h), space.view("x"), side_by_side)
        chosen = torch.empty_like(before)
        self.hide(stream, address(before), space["rule"], address(chosen))
        raw = product(chosen, weight_out.reshape(*lead, n * h, d))
        return raw, (before, chosen, side_by_side)

    def backward(
        self,
        stream: int,
        space: Space,
        back: Space,
        weights: tuple[Tensor, ...],
        kept: tuple[Tensor, ...],
    ) -> tuple[Any, Any, list[Tensor]]:
        """To x, to the choice of every rule (T, N), and to the four weights."""
        before, chosen, side_by_side = kept
        _, _, weight_out, bias_out = weights
        lead, _, n, i, h, d = self.size
        g, x, to_rule = back.view("outer"), space.view("x"), back["to_rule"]
        passed = product(g, weight_out.reshape(*lead, n * h, d).mT)
        sums = torch.empty(*lead, self.blocks, n, h + d, device=g.device)
        given = address(passed), address(before), space["rule"], back["outer"]
        self.expose(stream, *given, address(bias_out), to_rule, address(sums))
        to_bias_in, to_bias_out = sums.sum(-3).split([h, d], -1)
        to_weight_in = product(x.mT, passed).view(*lead, i, n, h).transpose(-3, -2)
        to_weight_out = product(chosen.mT, g).view(*lead, n, h, d)
        found = [to_weight_in, to_bias_in, to_weight_out, to_bias_out]
        return product(passed, side_by_side.mT), to_rule, found
