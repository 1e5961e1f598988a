"""The slots of OP3, half of each a latent with a normal distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Float


class State(NamedTuple):
    """K slots: a deterministic part, a latent with a normal distribution, and its refinement's."""

    fixed: Float[Tensor, "B K R"]
    mean: Float[Tensor, "B K R"]
    spread: Float[Tensor, "B K R"]
    noise: Float[Tensor, "B K R"]
    """Of the latent that is drawn: 0 is the likeliest one."""
    prior_mean: Float[Tensor, "B K R"]
    prior_spread: Float[Tensor, "B K R"]
    hidden: Float[Tensor, "B K H"]
    cell: Float[Tensor, "B K H"]

    @property
    def latent(self) -> Float[Tensor, "B K R"]:
        return self.mean + self.noise * deviation(self.spread)

    @property
    def slots(self) -> Float[Tensor, "B K 2R"]:
        return torch.cat([self.fixed, self.latent], -1)

    def detach(self) -> State:
        return State(*(part.detach() for part in self))


def deviation(spread: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Standard deviation: the variance is softplus(spread)."""
    return (nn.functional.softplus(spread) + 1e-5).sqrt()


def softplus_inverse(value: float) -> float:
    return float(torch.tensor(value).expm1().log())


def divergence(
    mean: Float[Tensor, "*shape"],
    spread: Float[Tensor, "*shape"],
    prior_mean: Float[Tensor, "*shape"],
    prior_spread: Float[Tensor, "*shape"],
) -> Float[Tensor, "*shape"]:
    """Of one normal distribution from another."""
    own, prior = deviation(spread), deviation(prior_spread)
    ratio, away = own / prior, (mean - prior_mean) / prior
    return 0.5 * (ratio.square() + away.square() - 1.0) - ratio.log()
