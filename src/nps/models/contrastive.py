"""C-SWM's contrastive loss, and where its negatives come from (section 4.3, appendix).

The energy of two states is their squared distance. It should be low between the prediction and the
true next state, and at least the hinge between a state and a negative. C-SWM and the paper take
negatives from the shuffled batch; in a world whose episodes differ in something that never changes
(colours), telling episodes apart is then enough. Biza, van der Pol and Kipf (2021) take half of the
negatives from the same episode, or all of them from the same time of other episodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Negatives = Literal["batch", "episode", "time-aligned"]
DRAWS = 2
"""Uniform random numbers that choose an example's negative."""


def energy(
    one: Float[Tensor, "*batch M D"], other: Float[Tensor, "*batch M D"], sigma: float = 0.5
) -> Float[Tensor, "*batch"]:
    """Squared distance, summed over a slot and averaged over slots, divided by 2 sigma^2."""
    return (one - other).square().sum(-1).mean(-1) * (0.5 / sigma**2)


def energy_shares(
    one: Float[Tensor, "*batch D"], other: Float[Tensor, "*batch D"], m: int, sigma: float = 0.5
) -> Float[Tensor, "*batch"]:
    """What each of m slots adds to the energy of two states."""
    return (one - other).square().sum(-1) * (0.5 / sigma**2 / m)


def energies_after(
    updated: Float[Tensor, "*batch M N M D"],
    state: Float[Tensor, "*batch M D"],
    next_state: Float[Tensor, "*batch M D"],
    sigma: float = 0.5,
    *,
    alone: bool,
) -> Float[Tensor, "*batch M N M"]:
    """The energy between the next state and the state after each single update.

    Args:
        updated: the slot that each update changes.
        state, next_state: all slots before and after the action.
        alone: count the slot that is updated alone, for slots that choose independently; else
            the others count too, as they are.
    """
    own = energy_shares(updated, next_state.unsqueeze(-2).unsqueeze(-2), state.shape[-2], sigma)
    if alone:
        return own
    still = energy_shares(state, next_state, state.shape[-2], sigma)
    others = still.sum(-1, keepdim=True) - still
    return own + others.unsqueeze(-1).unsqueeze(-1)


class Terms(NamedTuple):
    """The loss of each example is the sum of both."""

    positive: Float[Tensor, "B"]
    negative: Float[Tensor, "B"]


def shortfall(
    state: Float[Tensor, "B M D"],
    negative: Float[Tensor, "B M D"],
    hinge: float = 1.0,
    sigma: float = 0.5,
) -> Float[Tensor, "B"]:
    """By how much a negative is nearer to the state before the action than the hinge."""
    return (hinge - energy(state, negative, sigma)).clamp(min=0.0)


def contrastive(
    predicted: Float[Tensor, "B M D"],
    next_state: Float[Tensor, "B M D"],
    state: Float[Tensor, "B M D"],
    negative: Float[Tensor, "B M D"],
    *,
    hinge: float = 1.0,
    sigma: float = 0.5,
) -> Terms:
    """C-SWM's loss: the negative is compared with the state before the action."""
    return Terms(energy(predicted, next_state, sigma), shortfall(state, negative, hinge, sigma))


class Moments(NamedTuple):
    """States of a data set, by episode and time."""

    episode: Int[Tensor, "n"]
    time: Int[Tensor, "n"]


def negative_moments(
    kind: Negatives,
    now: Moments,
    noise: Float[Tensor, "B 2"],
    episodes: int,
    length: Int[Tensor, "E"] | int,
) -> Moments:
    """The states outside the batch that serve as negatives; none for `"batch"`.

    Args:
        kind: `"episode"`: for half of the batch, another time of the same episode.
            `"time-aligned"`: for all of it, the same time of another episode, or the last time of
            one that is shorter.
        now: the batch's own states.
        noise: uniform random numbers.
        episodes: number of episodes.
        length: number of states of each episode, or of all.
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
    """The encodings of `negative_moments`, and shuffled states for the rest of the batch."""
    if kind == "time-aligned":
        return others
    # As in C-SWM, a state may be its own negative: one per batch, on average.
    shuffled = state[noise[:, 0].argsort()]
    return torch.cat([others, shuffled[len(others) :]])


def _other_than(
    number: Int[Tensor, "n"], count: Int[Tensor, "n"] | int, draw: Float[Tensor, "n"]
) -> Int[Tensor, "n"]:
    """A random number below `count` that is not the given one, unless there is no other."""
    step = 1 + (draw * (count - 1)).long()
    return (number + step) % count
