"""Step 4 in training: the chosen rule's action on each row, with the gradient to every choice.

The straight-through gradient of the choice is <g, action_i(x)> for all N rules, so the hidden layer
of all of them is needed. But a rule that was not chosen passes no gradient on to its weights and
input. So the hidden layers of all rules are one product, the rest follows the chosen ones, and the
gradients to the weights are one product each: on a GPU a product for each rule would leave it idle.
The same values and gradients as the formula in `apply.py`, up to rounding; first derivatives only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from jaxtyping import Float


class Chosen(torch.autograd.Function):
    """Σ_i choice_i · (relu(x W_i + b_i) W'_i + b'_i), choices one-hot or zero.

    Everything has a leading dimension S: vmap's, or one. Besides the result come three tensors that
    the backward pass reads.
    """

    @staticmethod
    def forward(
        x: Float[Tensor, "S T I"],
        choice: Float[Tensor, "S T N"],
        weight_in: Float[Tensor, "S N I H"],
        bias_in: Float[Tensor, "S N H"],
        weight_out: Float[Tensor, "S N H D"],
        bias_out: Float[Tensor, "S N D"],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        s, n, i, h = weight_in.shape
        side_by_side = weight_in.transpose(1, 2).reshape(s, i, n * h)
        hidden = _hidden(x, side_by_side, bias_in.flatten(1))
        mine = _pick(choice, hidden)
        out = torch.baddbmm(choice @ bias_out, _place(choice, mine), weight_out.flatten(1, 2))
        return out, side_by_side, hidden, mine

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        x, choice, _, _, weight_out, bias_out = inputs
        _, side_by_side, hidden, mine = output
        ctx.mark_non_differentiable(side_by_side, hidden, mine)
        ctx.save_for_backward(x, choice, weight_out, bias_out, side_by_side, hidden, mine)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Float[Tensor, "S T D"], *_: Any) -> tuple[Tensor | None, ...]:
        x, choice, weight_out, bias_out, side_by_side, hidden, mine = ctx.saved_tensors
        n = choice.shape[-1]
        through = torch.bmm(g, weight_out.flatten(1, 2).transpose(1, 2))
        to_choice = (hidden * through).unflatten(-1, (n, -1)).sum(-1)
        to_choice = to_choice + g @ bias_out.transpose(1, 2)
        to_mine = torch.where(mine > 0, _pick(choice, through), 0.0)
        to_hidden = _place(choice, to_mine)
        to_weight_in = torch.bmm(x.transpose(1, 2), to_hidden).unflatten(-1, (n, -1))
        to_weight_out = torch.bmm(_place(choice, mine).transpose(1, 2), g)
        users = choice.transpose(1, 2)
        return (
            torch.bmm(to_hidden, side_by_side.transpose(1, 2)) if ctx.needs_input_grad[0] else None,
            to_choice,
            to_weight_in.transpose(1, 2),
            torch.bmm(users, to_mine),
            to_weight_out.view_as(weight_out),
            torch.bmm(users, g),
        )

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """The new dimension joins the leading one."""
        stacked = []
        for tensor, dim in zip(inputs, in_dims, strict=True):
            moved = tensor.movedim(dim, 0) if dim is not None else tensor.unsqueeze(0)
            stacked.append(moved.expand(info.batch_size, *moved.shape[1:]).flatten(0, 1))
        results = Chosen.apply(*stacked)
        return tuple(r.unflatten(0, (info.batch_size, -1)) for r in results), (0, 0, 0, 0)


def suits(x: Tensor) -> bool:
    """Is this the form to take? The compiler and autocast get the plain formula instead."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type):
        return False
    return x.is_cuda and torch.is_grad_enabled()


def _hidden(x: Tensor, weight: Tensor, bias: Tensor) -> Float[Tensor, "S T NH"]:
    if x.shape[0] == 1 and x.is_cuda:  # bias and ReLU inside the product, for one matrix only
        return torch._addmm_activation(bias[0], x[0], weight[0]).unsqueeze(0)
    return torch.baddbmm(bias.unsqueeze(1), x, weight).relu_()


def _pick(
    choice: Float[Tensor, "S T N"], all_rules: Float[Tensor, "S T NH"]
) -> Float[Tensor, "S T H"]:
    """The part of the chosen rule."""
    parts = all_rules.unflatten(-1, (choice.shape[-1], -1))
    return torch.matmul(choice.unsqueeze(-2), parts).squeeze(-2)


def _place(choice: Float[Tensor, "S T N"], part: Float[Tensor, "S T H"]) -> Float[Tensor, "S T NH"]:
    """Back to where the chosen rule's part was, zero elsewhere."""
    return (choice.unsqueeze(-1) * part.unsqueeze(-2)).flatten(-2)
