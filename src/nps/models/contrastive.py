"""C-SWM's contrastive loss, and where its negatives come from (section 4.3, appendix).

The energy of two states is their squared distance. It is to be low between the prediction and what
came, and at least the hinge between a state and another one, the negative. C-SWM and the paper take
it from the shuffled batch: in a world whose episodes differ in what never changes (colours),
telling episodes apart is then enough. Biza, van der Pol and Kipf (2021) take half of the negatives
from the same episode, or all of them from the same time of other ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Negatives = Literal["batch", "episode", "time-aligned"]
DRAWS = 2
"""Uniform numbers that the choice of an example's negative uses."""


def energy(
    one: Float[Tensor, "*batch M D"], other: Float[Tensor, "*batch M D"], sigma: float = 0.5
) -> Float[Tensor, "*batch"]:
    """Squared distance, summed over a slot and averaged over slots, by 2 sigma^2."""
    return (one - other).square().sum(-1).mean(-1) * (0.5 / sigma**2)


class Terms(NamedTuple):
    """The loss of each example is the sum of both."""

    positive: Float[Tensor, "B"]
    negative: Float[Tensor, "B"]


def contrastive(
    predicted: Float[Tensor, "B M D"],
    came: Float[Tensor, "B M D"],
    state: Float[Tensor, "B M D"],
    negative: Float[Tensor, "B M D"],
    *,
    hinge: float = 1.0,
    sigma: float = 0.5,
) -> Terms:
    """C-SWM's: the negative is compared with the state before the action."""
    far = (hinge - energy(state, negative, sigma)).clamp(min=0.0)
    return Terms(energy(predicted, came, sigma), far)


class Moments(NamedTuple):
    """States of a data set, by episode and time."""

    episode: Int[Tensor, "n"]
    time: Int[Tensor, "n"]


def elsewhere(
    kind: Negatives,
    now: Moments,
    noise: Float[Tensor, "B 2"],
    episodes: int,
    length: Int[Tensor, "E"] | int,
) -> Moments:
    """The states beside the batch's own that its negatives need; none for `"batch"`.

    Args:
        kind: half of the batch at another time of the same episode, or all of it at the same time
            of another episode, or at the end of one that is shorter.
        now: the batch's own states.
        noise: uniform numbers.
        episodes: how many there are.
        length: how many states each has, or all of them have.
    """
    count = {"batch": 0, "episode": len(now.time) // 2, "time-aligned": len(now.time)}[kind]
    episode, time, draw = now.episode[:count], now.time[:count], noise[:count, 1]
    if kind == "episode":
        states = length if isinstance(length, int) else length[episode]
        return Moments(episode, _other_than(time, states, draw))
    other = _other_than(episode, episodes, draw)
    return Moments(other, time if isinstance(length, int) else time.minimum(length[other] - 1))


def negatives(
    kind: Negatives,
    state: Float[Tensor, "B M D"],
    others: Float[Tensor, "n M D"],
    noise: Float[Tensor, "B 2"],
) -> Float[Tensor, "B M D"]:
    """The encodings of `elsewhere`, and for the rest of the batch its shuffled states."""
    if kind == "time-aligned":
        return others
    # As in C-SWM, a state may be its own negative: one of a batch, on average.
    shuffled = state[noise[:, 0].argsort()]
    return torch.cat([others, shuffled[len(others) :]])


def _other_than(
    number: Int[Tensor, "n"], count: Int[Tensor, "n"] | int, draw: Float[Tensor, "n"]
) -> Int[Tensor, "n"]:
    """Any number below `count` but the given one; that one if there is no other."""
    step = 1 + (draw * (count - 1)).long()
    return (number + step) % count
