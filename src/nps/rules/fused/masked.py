"""Step 4 on a GPU, one product for all rules: hidden layers that were not chosen are zero.

As `_masked` in `action.py`, with kernels in place of the operations between the products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.rules.fused import calls
from nps.rules.fused.inputs import Inputs, add_product, product

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def act(inputs: Inputs, x: Float[Tensor, "S T I"], rule: Int[Tensor, "S T"]) -> tuple[Tensor, ...]:
    """What the chosen rules do, without its bias, and three tensors for `act_gradient`."""
    s, n, i, h = inputs.weight_in.shape
    side_by_side = inputs.weight_in.transpose(1, 2).reshape(s, i, n * h)
    before = add_product(inputs.bias_in.reshape(s, 1, n * h), x, side_by_side)
    mine, rows = torch.empty_like(before), rule.numel()
    block = _block(rows)
    grid, sizes = (-(-rows // block), n), {"N": n, "H": h, "HP": calls.power(h), "ROWS": block}
    calls.call("hide", grid, before, rule, mine, rows, **sizes)
    return product(mine, inputs.weight_out.flatten(1, 2)), before, mine, side_by_side


def act_gradient(
    inputs: Inputs,
    g: Float[Tensor, "S T D"],
    x: Float[Tensor, "S T I"],
    rule: Int[Tensor, "S T"],
    before: Tensor,
    mine: Tensor,
    side_by_side: Tensor,
) -> tuple[Tensor, ...]:
    """To x, to the choice of every rule (S, T, N), and to the four weights."""
    (s, n, i, h), (_, t, d) = inputs.weight_in.shape, g.shape
    passed = product(g, inputs.weight_out.flatten(1, 2).mT)
    block = _block(s * t)
    blocks = -(-t // block)
    to_choice, sums = g.new_empty(s, t, n), g.new_empty(s, blocks, n, h + d)
    given = passed, before, rule, g, inputs.bias_out.contiguous(), to_choice, sums, t, blocks
    sizes = {"N": n, "H": h, "D": d, "HP": calls.power(h), "DP": calls.power(d), "ROWS": block}
    calls.call("expose", (s * blocks, n), *given, **sizes)
    to_bias_in, to_bias_out = sums.sum(1).split([h, d], -1)
    to_weight_in = product(x.mT, passed).view(s, i, n, h).transpose(1, 2)
    to_weight_out = product(mine.mT, g).view(s, n, h, d)
    to_x = product(passed, side_by_side.mT)
    return to_x, to_choice, to_weight_in, to_bias_in, to_weight_out, to_bias_out


def _block(rows: int) -> int:
    """Rows of a program: few enough to keep all processors busy."""
    return 16 if rows <= 4096 else 32
