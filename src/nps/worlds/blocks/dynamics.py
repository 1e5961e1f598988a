"""The rules of the weighted blocks, for any number of worlds at once.

An action moves one block by one cell. A block in the way is pushed one cell further, if it is
lighter and the cell behind it is free. At most two blocks move. Nothing here waits for the device,
so that a step can be captured in a CUDA graph.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Int8, Integer, UInt8

GRID = 5
STAY, NORTH, EAST, SOUTH, WEST = range(5)


class Outcome(IntEnum):
    """The outcome of an action."""

    NOTHING = 0
    """Nothing moved: to stay, or a wall or a block that cannot be pushed is in the way."""
    FREE = 1
    """The block moved into a free cell."""
    PUSH = 2
    """The block moved and pushed another one."""
    INVALID = 3
    """Two blocks in a row are in the way: nothing moves, and such a step is not recorded."""


class State(NamedTuple):
    """M blocks in every world of a batch. Only `positions` changes within an episode."""

    positions: Int8[Tensor, "*batch M 2"]
    """Row and column from the upper left, 0 to 4; no two blocks share a cell."""
    weights: Int8[Tensor, "*batch M"]
    """Only their order matters."""
    shapes: Int8[Tensor, "*batch M"]
    """Indices into `nps.worlds.blocks.drawing.SHAPES`."""
    colours: UInt8[Tensor, "*batch M 3"]

    def at(self, index: Tensor | int | slice) -> State:
        """Some of the worlds."""
        return State(*(part[index] for part in self))

    def to(self, device: torch.device | str) -> State:
        return State(*(part.to(device) for part in self))


def action_count(objects: int = 5, stay: bool = True) -> int:
    """For 5 blocks: 25 actions as in Ke et al.'s data, or 20 without staying as in C-SWM's."""
    return objects * (5 if stay else 4)


def step(
    state: State, action: Integer[Tensor, "*batch"], stay: bool = True
) -> tuple[State, Int8[Tensor, "*batch"]]:
    """The state after an action in each world, and its `Outcome`.

    Args:
        state: is not modified.
        action: block * 5 + direction, where directions are stay, north, east, south, west. Must be
            below `action_count`; this is not checked.
        stay: False if there is no action to stay: then an action is block * 4 + direction, and
            directions start with north.
    """
    positions, weights = state.positions, state.weights
    if action.shape != weights.shape[:-1]:
        raise ValueError(
            f"action: got shape {tuple(action.shape)}, expected {tuple(weights.shape[:-1])}"
        )
    directions = 5 if stay else 4
    primary, direction = action // directions, action % directions + (5 - directions)
    offset = _offset(direction)[..., None, :]
    moving = torch.arange(weights.shape[-1], device=weights.device) == primary[..., None]
    target = positions.take_along_dim(primary[..., None, None], -2) + offset
    behind = target + offset

    met = _lies_at(positions, target) & ~moving
    weight = weights.take_along_dim(primary[..., None], -1)
    lighter = (met & (weights < weight)).any(-1, keepdim=True)
    third = _lies_at(positions, behind).any(-1, keepdim=True)

    free = _inside(target) & ~met.any(-1, keepdim=True) & (direction != STAY)[..., None]
    push = lighter & _inside(behind) & ~third
    invalid = lighter & third

    moves = (moving & (free | push)) | (met & push)
    outcome = Outcome.FREE * free + Outcome.PUSH * push + Outcome.INVALID * invalid
    after = state._replace(positions=positions + moves[..., None] * offset)
    return after, outcome.squeeze(-1).to(torch.int8)


def every_action(state: State, stay: bool = True) -> tuple[State, Int8[Tensor, "*batch A"]]:
    """The states after each of the A actions, `(*batch, A, ...)`, and their outcomes."""
    batch, objects = state.weights.shape[:-1], state.weights.shape[-1]
    count = action_count(objects, stay)
    action = torch.arange(count, device=state.weights.device).expand(*batch, count)
    each = State(
        *(
            part.unsqueeze(len(batch)).expand(*batch, count, *part.shape[len(batch) :])
            for part in state
        )
    )
    return step(each, action, stay)


def _offset(direction: Integer[Tensor, "*batch"]) -> Int8[Tensor, "*batch 2"]:
    row = (direction == SOUTH).to(torch.int8) - (direction == NORTH).to(torch.int8)
    column = (direction == EAST).to(torch.int8) - (direction == WEST).to(torch.int8)
    return torch.stack([row, column], -1)


def _lies_at(positions: Tensor, cell: Tensor) -> Tensor:
    return (positions == cell).all(-1)


def _inside(cell: Tensor) -> Tensor:
    return ((cell >= 0) & (cell < GRID)).all(-1)
