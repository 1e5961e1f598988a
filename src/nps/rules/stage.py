"""What one stage of either algorithm leaves behind, and how it changes the slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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


def residual(slots: Tensor, primary: Tensor, update: Tensor, events: int) -> Tensor:
    """slots + primary · update, where slots that are not primary come back bit for bit.

    Adding 0 · update would turn -0.0 into 0.0, and an overflow of the update into NaN everywhere.
    The gradient to `primary` is that of the plain formula for every slot, primary or not.
    """
    change = (behind(primary, events) * update).to(slots.dtype)
    still = slots - (change.detach() - change) if torch.is_grad_enabled() else slots
    return torch.where(behind(primary.detach() > 0, events), slots + change, still)


def behind(x: Tensor, dims: int) -> Tensor:
    """Append `dims` dimensions of size one, to meet a slot's own dimensions."""
    return x.reshape(*x.shape, *[1] * dims)
