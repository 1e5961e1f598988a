"""What one stage of either algorithm leaves behind, and how it changes the slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nps.rules.trace import Trace, index_or_none

if TYPE_CHECKING:
    from jaxtyping import Float


class Choices(NamedTuple):
    """The one-hot choices of one stage and the scores behind them, each for all M slots."""

    primary: Float[Tensor, "*batch M"]
    rule: Float[Tensor, "*batch #M N"]
    context: Float[Tensor, "*batch #M M"]
    rule_scores: Float[Tensor, "*batch M N"]
    context_scores: Float[Tensor, "*batch #M M"]

    def trace(self) -> Trace:
        fired = self.primary.detach() > 0
        return Trace(
            rule=torch.where(fired, index_or_none(self.rule), -1),
            context=torch.where(fired, index_or_none(self.context), -1),
            rule_scores=self.rule_scores,
            context_scores=torch.where(fired.unsqueeze(-1), self.context_scores, 0.0),
        )


class Residual(torch.autograd.Function):
    """Forward: primary slots get the update. Backward: of slots + primary · update."""

    generate_vmap_rule = True

    @staticmethod
    def forward(slots: Tensor, primary: Tensor, update: Tensor) -> Tensor:
        return torch.where(primary > 0, slots + update.to(slots.dtype), slots)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        primary, update = ctx.saved_tensors
        to_primary = (grad * update).sum_to_size(primary.shape)
        to_update = (grad * primary).sum_to_size(update.shape)
        return grad, to_primary.to(primary.dtype), to_update.to(update.dtype)


def residual(slots: Tensor, primary: Tensor, update: Tensor, events: int) -> Tensor:
    """slots + primary · update, where slots that are not primary come back bit for bit.

    Adding 0 · update would turn -0.0 into 0.0, and an overflow of the update into NaN everywhere.
    The gradient to `primary` is that of the plain formula for every slot, primary or not.
    """
    primary = behind(primary, events)
    if torch.compiler.is_compiling():
        return _plain_residual(slots, primary, update)
    new: Tensor = Residual.apply(slots, primary, update)
    return new


def _plain_residual(slots: Tensor, primary: Tensor, update: Tensor) -> Tensor:
    """`Residual` for the compiler: it fuses this, and under vmap loses the other's gradient."""
    change = (primary * update).to(slots.dtype)
    still = slots - (change.detach() - change)
    return torch.where(primary.detach() > 0, slots + change, still)


def pick(
    choice: Float[Tensor, "*batch P M"], slots: Float[Tensor, "*batch M *slot"], events: int = 1
) -> Float[Tensor, "*batch P *slot"]:
    """The chosen slots. A product with one-hot rows is exact: to one slot it adds but zeros."""
    choice, flat = choice.to(slots.dtype), slots.flatten(-events)
    if choice.shape[-2] == 1 and slots.device.type == "cpu":  # slow at many tiny products
        picked = (choice.mT * flat).sum(-2, keepdim=True)
    else:
        with torch.autocast(slots.device.type, enabled=False):
            picked = choice @ flat
    return picked.reshape(*picked.shape[:-1], *slots.shape[-events:])


def behind(x: Tensor, dims: int) -> Tensor:
    """Append `dims` dimensions of size one, to meet a slot's own dimensions."""
    return x.reshape(*x.shape, *[1] * dims)
