"""Step 4 on a GPU for few rows: one product for all rules, other rules' hidden layers set to zero.

The products are torch's, with kernels in place of the operations between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nps.kernels.rules.grouped import Size
from nps.kernels.rules.inputs import Values, product
from nps.kernels.rules.launch import Launch, Places, parts, power

MOVED = 16
"""Rows that a program moves."""
Action = Callable[[], None]
View = Callable[[str], Tensor]
"""A part of the stage's buffers by name."""


class Joint:
    """The launches at one size, and the parts of buffers that they use, as in `Grouped`."""

    def __init__(self, size: Size) -> None:
        lead, t, n, i, h, d = size
        self.size = size
        self.rows = 16 if size.s * t <= 4096 else 32  # few enough to keep all processors busy
        self.blocks = parts(t, self.rows)
        self.kept = {
            "side_by_side": (*lead, i, n * h),
            "before": (*lead, t, n * h),
            "chosen_layer": (*lead, t, n * h),
            "raw": (*lead, t, d),
        }
        self.passed = {
            "passed": (*lead, t, n * h),
            "to_x": (*lead, t, i),
            "to_rule": (*lead, t, n),
            "bias_sums": (*lead, self.blocks, n, h + d),
        }
        self.gradients: dict[str, tuple[int, ...]] = {}

    def hide(self, places: Places) -> Launch:
        _, t, n, _, h, _ = self.size
        grid = parts(self.size.s * t, self.rows), n
        sizes = {"H": h, "HP": power(h), "ROWS": self.rows}
        return Launch(places, "hide", grid, (self.size.s * t, n), sizes)

    def change(self, places: Places) -> Launch:
        rows, d = self.size.s * self.size.t, self.size.d
        constants = {"D": d, "DP": power(d), "ROWS": MOVED}
        numbers = rows, self.size.t, self.size.n
        return Launch(places, "change_targets", (parts(rows, MOVED),), numbers, constants)

    def expose(self, places: Places) -> Launch:
        _, t, n, _, h, d = self.size
        sizes = {"H": h, "D": d, "HP": power(h), "DP": power(d), "ROWS": self.rows}
        grid = self.size.s * self.blocks, n
        return Launch(places, "expose", grid, (t, self.blocks, n), sizes)

    def forward(self, launch: Sequence[Action], view: View, values: Values) -> None:
        """Between launches that choose, `hide` and `change`, the products."""
        lead, t, n, i, h, d = self.size
        choose, hide, change = launch
        choose()
        side_by_side, bias = view("side_by_side"), values.bias_in.reshape(*lead, 1, n * h)
        side_by_side.view(*lead, i, n, h).copy_(values.weight_in.transpose(-3, -2))
        add = torch.baddbmm if lead else torch.addmm
        add(bias.expand(*lead, t, n * h), view("x"), side_by_side, out=view("before"))
        hide()
        product(view("chosen_layer"), values.weight_out.view(*lead, n * h, d), out=view("raw"))
        change()

    def backward(self, launch: Sequence[Action], view: View, values: Values) -> list[Tensor]:
        """To the four weights. The launches take, `expose`, and use what is in the buffers."""
        lead, _, n, i, h, d = self.size
        take, expose, choose = launch
        take()
        g, x, passed = view("outer"), view("x"), view("passed")
        product(g, values.weight_out.view(*lead, n * h, d).mT, out=passed)
        expose()
        product(passed, view("side_by_side").mT, out=view("to_x"))
        to_bias_in, to_bias_out = view("bias_sums").sum(-3).split([h, d], -1)
        to_weight_in = product(x.mT, passed).view(*lead, i, n, h).transpose(-3, -2)
        to_weight_out = product(view("chosen_layer").mT, g).view(*lead, n, h, d)
        choose()
        return [to_weight_in, to_bias_in, to_weight_out, to_bias_out]
