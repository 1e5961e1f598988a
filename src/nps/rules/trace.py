"""What fired where: the record of one call of a rule layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


class Trace(NamedTuple):
    """Which rule fired on which slot, with which context, and the scores that decided it.

    Everything stays on the device. The scores are those before masks, dropout and noise, and carry
    gradients (a loss on them is possible); detach a trace that is kept beyond the step.
    """

    rule: Int[Tensor, "*batch K M"]
    """The rule that fired on slot m at stage k, or -1."""
    context: Int[Tensor, "*batch K M"]
    """The slot it took as its context, or -1 (also where no slot was allowed as context)."""
    rule_scores: Float[Tensor, "*batch K M N"]
    """Scores of every rule on every slot."""
    context_scores: Float[Tensor, "*batch K M M"]
    """Row m: scores of all slots as context of slot m; zero where slot m did not fire."""

    @property
    def fired(self) -> Bool[Tensor, "*batch K M"]:
        """True where a rule changed the slot."""
        return self.rule >= 0

    @classmethod
    def of_stages(cls, stages: list[Trace], batch_dims: int) -> Trace:
        """Stack the traces of K stages behind the batch dimensions."""
        if len(stages) == 1:  # nothing to copy
            return cls(*(part.unsqueeze(batch_dims) for part in stages[0]))
        return cls(*(torch.stack(parts, batch_dims) for parts in zip(*stages, strict=True)))


class Choices(NamedTuple):
    """The one-hot choices of one stage and the scores behind them.

    A dimension of 1 in place of M: one rule or context for the whole stage, as in Algorithm 1.
    """

    primary: Float[Tensor, "*batch M"]
    rule: Float[Tensor, "*batch #M N"]
    context: Float[Tensor, "*batch #M M"]
    rule_scores: Float[Tensor, "*batch M N"]
    context_scores: Float[Tensor, "*batch #M M"]

    def trace(self) -> Trace:
        """The trace of this stage, without the dimension K."""
        fired = self.primary.detach() > 0
        return Trace(
            rule=torch.where(fired, index_or_none(self.rule), -1),
            context=torch.where(fired, index_or_none(self.context), -1),
            rule_scores=self.rule_scores,
            context_scores=torch.where(fired.unsqueeze(-1), self.context_scores, 0.0),
        )


def index_or_none(choice: Float[Tensor, "*batch N"]) -> Int[Tensor, "*batch"]:
    """The index of a one-hot choice, -1 where nothing was chosen."""
    return torch.where(choice.detach().amax(-1) > 0, choice.argmax(-1), -1)
