"""Step 4 in training: the chosen rule's action on each row, with the gradient to every choice.

The straight-through gradient of the choice is <g, action_i(x)> for all N rules, so all of them have
to be computed. A rule that was not chosen passes no gradient on to its weights and input, though.
Two exact forms make use of that; `apply.py` says which is taken where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def masked(
    x: Float[Tensor, "T I"],
    choice: Float[Tensor, "T N"],
    weight_in: Float[Tensor, "N I H"],
    bias_in: Float[Tensor, "N H"],
    weight_out: Float[Tensor, "N H D"],
    bias_out: Float[Tensor, "N D"],
) -> Float[Tensor, "T D"]:
    """One product a layer for all rules, the hidden layers of the others set to zero between.

    For a GPU: its gradients to the weights are two large products, where N small ones would keep a
    few of the processors busy. The compiler joins what is between the products into one kernel.
    """
    n, i, h = weight_in.shape
    side_by_side = weight_in.transpose(0, 1).reshape(i, n * h)
    hidden = torch.addmm(bias_in.flatten(), x, side_by_side).relu()
    mine = hidden.unflatten(-1, (n, h)) * choice.unsqueeze(-1)
    return torch.addmm(choice @ bias_out, mine.flatten(-2), weight_out.flatten(0, 1))


class ByRule(torch.autograd.Function):
    """The backward pass rule by rule, each on the rows that chose it: for many rows on a CPU.

    Its cost does not grow with N, and it keeps all outputs but no hidden layer beyond the chosen
    ones: a third of the memory. First derivatives only.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "T I"],
        choice: Float[Tensor, "T N"],
        weight_in: Float[Tensor, "N I H"],
        bias_in: Float[Tensor, "N H"],
        weight_out: Float[Tensor, "N H D"],
        bias_out: Float[Tensor, "N D"],
    ) -> Float[Tensor, "T D"]:
        inputs = x.expand(len(weight_in), -1, -1)
        hidden = torch.baddbmm(bias_in.unsqueeze(1), inputs, weight_in).relu_()
        outputs = torch.baddbmm(bias_out.unsqueeze(1), hidden, weight_out)
        mine = _pick(choice, hidden)
        ctx.save_for_backward(x, choice, weight_in, weight_out, outputs, mine)
        return _pick(choice, outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Float[Tensor, "T D"]) -> tuple[Tensor | None, ...]:
        x, choice, weight_in, weight_out, outputs, mine = ctx.saved_tensors
        to_choice = torch.bmm(outputs.transpose(0, 1), g.unsqueeze(-1)).squeeze(-1)
        to_x, to_mine = torch.zeros_like(x), torch.zeros_like(mine)
        to_weight_in, to_weight_out = torch.zeros_like(weight_in), torch.zeros_like(weight_out)
        for rule, rows in _rows_by_rule(choice):
            g_rows, mine_rows = g.index_select(0, rows), mine.index_select(0, rows)
            torch.mm(mine_rows.t(), g_rows, out=to_weight_out[rule])
            passed = torch.where(mine_rows > 0, g_rows @ weight_out[rule].t(), 0.0)
            torch.mm(x.index_select(0, rows).t(), passed, out=to_weight_in[rule])
            to_mine.index_copy_(0, rows, passed)
            if ctx.needs_input_grad[0]:
                to_x.index_copy_(0, rows, passed @ weight_in[rule].t())
        users = choice.t()
        return to_x, to_choice, to_weight_in, users @ to_mine, to_weight_out, users @ g


def _pick(choice: Float[Tensor, "T N"], parts: Float[Tensor, "N T P"]) -> Float[Tensor, "T P"]:
    """The part of the chosen rule."""
    return torch.bmm(choice.unsqueeze(1), parts.transpose(0, 1)).squeeze(1)


def _rows_by_rule(choice: Float[Tensor, "T N"]) -> list[tuple[int, Int[Tensor, "rows"]]]:
    """The rules that were chosen, each with its rows."""
    n = choice.shape[1]
    best, rule = choice.max(-1)
    ranked, order = torch.where(best > 0, rule, n).sort(stable=True)
    counts = torch.bincount(ranked, minlength=n + 1).tolist()
    return [(i, rows) for i, rows in enumerate(order.split(counts)[:n]) if len(rows)]
