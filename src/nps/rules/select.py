"""Step 2: where a rule and a primary slot are chosen (paper, section 3.1).

q_j = V_j W^q, k_i = R_i W^k, score_ji = q_j · k_i. Algorithm 1 chooses one (slot, rule) pair among
all M·N. Algorithm 2 first lets the rules compete, jointly, with the null rule for every slot, then
chooses a rule for each slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Unpack

import torch
from torch import Tensor, nn

from nps.rules.choice import hard_choice
from nps.rules.config import Query
from nps.rules.projection import Factory, Projection, match

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class Selected(NamedTuple):
    """Step 2: the primary slots and their rules, one-hot, and the scores behind them."""

    primary: Float[Tensor, "*batch M"]
    rule: Float[Tensor, "*batch #M N"]
    scores: Float[Tensor, "*batch M N"]


class Select(nn.Module):
    """Scores of every rule on every slot: W^q and W^k.

    Shapes: features (..., M, F), embedding (N, rule_dim) -> (..., M, N).
    """

    def __init__(
        self,
        selection_dim: int,
        rule_dim: int,
        key_dim: int,
        query: Query,
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__()
        self.query = Projection(selection_dim, key_dim, query, **factory)
        self.key = Projection(rule_dim, key_dim, **factory)

    def forward(self, features: Tensor, embedding: Tensor) -> Tensor:
        return match(self.query(features), self.key(embedding))


def select_pair(
    scores: Float[Tensor, "*batch M N"],
    allowed: Bool[Tensor, "*#batch #M N"] | None,
    noise: Float[Tensor, "*batch M*N"] | None,
    temperature: float | Tensor,
) -> tuple[Float[Tensor, "*batch M"], Float[Tensor, "*batch 1 N"]]:
    """Algorithm 1: the best (slot, rule) pair, as a one-hot primary slot and a one-hot rule."""
    if allowed is not None:
        allowed = allowed.expand_as(scores).flatten(-2)
    pair = hard_choice(scores.flatten(-2), allowed=allowed, noise=noise, temperature=temperature)
    pair = pair.unflatten(-1, scores.shape[-2:])
    return pair.sum(-1), pair.sum(-2).unsqueeze(-2)


def select_primaries(
    bids: Float[Tensor, "*batch M 2"],
    noise: Float[Tensor, "*batch M 2"] | None,
    temperature: float | Tensor,
) -> Float[Tensor, "*batch M"]:
    """Algorithm 2: 1 for the slots that the rules win from the null rule, 0 for the others."""
    return hard_choice(bids, noise=noise, temperature=temperature)[..., 0]


def select_rules(
    scores: Float[Tensor, "*batch M N"],
    allowed: Bool[Tensor, "*#batch #M N"] | None,
    noise: Float[Tensor, "*batch M N"] | None,
    temperature: float | Tensor,
) -> Float[Tensor, "*batch M N"]:
    """Algorithm 2: a one-hot rule for each slot; a zero row where no rule is allowed."""
    if scores.shape[-1] == 1:  # nothing to choose, and nothing to learn from it
        return torch.ones_like(scores) if allowed is None else allowed.expand_as(scores).to(scores)
    return hard_choice(scores, allowed=allowed, noise=noise, temperature=temperature)
