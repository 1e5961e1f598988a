"""Episodes of random actions, as in the paper: 1,000 of 100 steps for training, 10,000 of 10 steps
for testing.

Stored as positions, not as images: 100,000 steps take 2 MB instead of 760, and are drawn on the
device inside a training step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.worlds.blocks.dynamics import Outcome, State, action_count, step
from nps.worlds.blocks.modes import start

if TYPE_CHECKING:
    from jaxtyping import Int8, Int64, UInt8


class BlockEpisodes(NamedTuple):
    """E episodes of T steps; the action at t leads from the state at t to the one at t + 1."""

    positions: Int8[Tensor, "E T+1 M 2"]
    weights: Int8[Tensor, "E M"]
    shapes: Int8[Tensor, "E M"]
    colours: UInt8[Tensor, "E M 3"]
    action: Int64[Tensor, "E T"]
    outcome: Int8[Tensor, "E T"]
    """`Outcome`s, never INVALID."""

    def state(self, episode: Tensor | int | slice, t: Tensor | int | slice) -> State:
        """The states of some episodes at some times; indices of equal shapes, or one time."""
        constant = (self.weights, self.shapes, self.colours)
        return State(self.positions[episode, t], *(part[episode] for part in constant))

    def to(self, device: torch.device | str) -> BlockEpisodes:
        return BlockEpisodes(*(part.to(device) for part in self))


def episodes(
    count: int,
    steps: int,
    seed: int,
    mode: str = "unobserved",
    *,
    objects: int = 5,
    stay: bool = True,
) -> BlockEpisodes:
    """Record episodes of uniformly random actions; an invalid push is sampled again.

    Args:
        count: number of episodes E.
        steps: recorded steps T of each.
        seed: equal seeds give equal episodes.
        mode: a name in `MODES`.
        objects: number of blocks M, 2 to 6.
        stay: whether there is an action to stay: `objects` * 5 actions, else * 4.
    """
    if steps < 1:
        raise ValueError(f"steps: got {steps}, expected at least 1")
    draw = torch.Generator().manual_seed(seed)
    first = state = start(count, mode, draw, objects)
    positions, actions, outcomes = [state.positions], [], []
    for _ in range(steps):
        state, action, outcome = _random_step(state, draw, stay)
        positions.append(state.positions)
        actions.append(action)
        outcomes.append(outcome)
    walk = torch.stack(positions, 1)
    return BlockEpisodes(walk, *first[1:], torch.stack(actions, 1), torch.stack(outcomes, 1))


def _random_step(
    state: State, draw: torch.Generator, stay: bool
) -> tuple[State, Int64[Tensor, "B"], Int8[Tensor, "B"]]:
    count, objects = state.weights.shape
    actions = action_count(objects, stay)
    action = torch.randint(actions, (count,), generator=draw)
    after, outcome = step(state, action, stay)
    while len(again := (outcome == Outcome.INVALID).nonzero().squeeze(-1)):
        action[again] = torch.randint(actions, again.shape, generator=draw)
        redone, result = step(state.at(again), action[again], stay)
        after.positions[again], outcome[again] = redone.positions, result
    return after, action, outcome
