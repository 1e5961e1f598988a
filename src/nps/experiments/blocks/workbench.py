"""What `nps view` shows of a world model of blocks: the true world knows where every block is.

The truth follows the user: under other actions, and where a block is dragged to another free cell,
the images and events are those of the world that is simulated again from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nps.experiments.blocks.pushes import SlotOf, slot_changes, slots_of_blocks
from nps.experiments.world_models.imagination import Imagination, Reality
from nps.experiments.world_models.scenes import Scene, acted
from nps.experiments.world_models.workbench import PLACE, WorldModelWorkbench
from nps.inspect.edits import Edits
from nps.inspect.workbench import World
from nps.models.world_model import WorldModel
from nps.worlds.blocks import Outcome, State, render, start, step
from nps.worlds.blocks.dynamics import GRID

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped, UInt8
    from numpy import ndarray

DIRECTIONS = ("stay", "north", "east", "south", "west")
MOVES = 200
"""Moves of the training set from which the slot of each block is found."""
ARROWS = {"ArrowUp": "north", "ArrowRight": "east", "ArrowDown": "south", "ArrowLeft": "west"}


@dataclass(frozen=True)
class BlockScene(Scene):
    """An episode of blocks, which can draw any placement of them."""

    bench: BlocksWorkbench | None = None
    states: State | None = None
    """Of the T + 1 frames."""

    def like(self, slots: Float[Tensor, "n M D"]) -> UInt8[Tensor, "p 50 50 3"]:
        """The placement that the probe reads from each slot."""
        assert self.bench is not None
        assert self.states is not None
        if self.bench.probe is None or not self.bench.slot_of.one_to_one:
            return self.images[:0]
        return render(self.states._replace(positions=self.bench.cells(slots)))


class BlocksWorkbench(WorldModelWorkbench):
    """A world model of blocks."""

    def __init__(self, task: Any, model: WorldModel) -> None:
        super().__init__(task, model)
        self.stay, self.objects = task.config.stay, task.config.objects
        directions = DIRECTIONS if self.stay else DIRECTIONS[1:]
        self.directions = directions
        self.actions = [f"block {b} {way}" for b in range(self.objects) for way in directions]

    @property
    def keys(self) -> Mapping[str, Sequence[int]]:  # type: ignore[override]
        """The arrows move the block of a slot."""
        blocks = [self.block_of[m] for m in range(self.model.actions.slots)]
        return {
            key: [b * len(self.directions) + self.directions.index(way) for b in blocks]
            for key, way in ARROWS.items()
        }

    @cached_property
    def opening(self) -> int:
        """The first episode with a push, after which something can be seen."""
        pushes = self.task.sets["validation"].outcome[:, :-1] == Outcome.PUSH
        return int(pushes.any(-1).int().argmax())

    # -- which slot shows which block ---------------------------------------------------------

    @cached_property
    @torch.no_grad()
    def slot_of(self) -> SlotOf:
        """The slot of each block, from free moves of the training set."""
        train = self.task.sets["train"]
        return slots_of_blocks(slot_changes(self.model, train, self.objects, MOVES))

    @cached_property
    def block_of(self) -> dict[int, int]:
        return {m: block for block, m in enumerate(self.slot_of.slot.tolist())}

    @property
    def slot_names(self) -> tuple[str, ...]:
        if not self.slot_of.one_to_one:
            return super().slot_names
        return tuple(f"block {self.block_of[m]}" for m in range(self.model.actions.slots))

    def values(
        self, episode: Tensor, time: Tensor, images: Shaped[Tensor, "n H W C"]
    ) -> Float[ndarray, "n M 2"]:
        """The true places of the blocks."""
        if not self.slot_of.one_to_one:
            return super().values(episode, time, images)
        positions = self.task.sets["train"].positions[episode, time].cpu().numpy()
        found = np.full((len(positions), self.model.actions.slots, len(PLACE)), np.nan)
        found[:, self.slot_of.slot.cpu().numpy()] = (positions + 0.5) / GRID
        return found

    def cells(self, slots: Float[Tensor, "*batch M D"]) -> Int[Tensor, "*batch objects 2"]:
        """Row and column of each block on the grid, as the probe reads them."""
        places = self.features(slots.cpu().numpy())
        cell = np.clip(np.floor(places * GRID), 0, GRID - 1).astype(np.int8)
        return torch.from_numpy(cell).to(slots.device)[..., self.slot_of.slot, :]

    def places(
        self, slots: Float[ndarray, "n M D"], maps: Float[Tensor, "n M h w"]
    ) -> Float[ndarray, "n M 2"]:
        """The middles of the blocks' cells: a block stands in one, wherever a probe reads it."""
        found = super().places(slots, maps)
        if self.probe is None or not self.slot_of.one_to_one:
            return found
        cell: ndarray = np.clip(np.floor(found * GRID), 0, GRID - 1)
        return np.asarray((cell + 0.5) / GRID)

    # -- the truth ----------------------------------------------------------------------------

    def scene(self, episode: int, edits: Edits) -> BlockScene:
        data = self.task.sets["validation"]
        state = data.state(torch.tensor([episode], device=self.task.device), 0)
        actions = acted(data.action[episode], edits)
        states, events = [], []
        for t, action in enumerate(actions):
            state = self.with_placed(state, edits, t)
            states.append(state)
            state, event = happens(state, action[None], self.stay)
            events.append(event)
        every = State(*map(torch.cat, zip(*states, state, strict=True)))
        return BlockScene(render(every), actions, tuple(events), bench=self, states=every)

    def with_placed(self, state: State, edits: Edits, t: int) -> State:
        """The state with the blocks that are dragged to another free cell."""
        positions = state.positions.clone()
        for edit in edits.placed if self.slot_of.one_to_one else ():
            if edit.step == t and edit.feature in PLACE:
                cell = int(np.clip(np.floor(edit.value * GRID), 0, GRID - 1))
                positions[0, self.block_of[edit.slot], PLACE.index(edit.feature)] = cell
        if len(set(map(tuple, positions[0].tolist()))) < self.objects:
            return state
        return state._replace(positions=positions)

    # -- play ---------------------------------------------------------------------------------

    def world(self, seed: int) -> World:
        draw = torch.Generator().manual_seed(seed)
        state = start(1, self.task.config.mode, draw, self.objects)
        return Imagination(self, BlocksReality(self, state.to(self.task.device)))


class BlocksReality(Reality):
    """One world of blocks."""

    def __init__(self, bench: BlocksWorkbench, state: State) -> None:
        self._bench, self._state = bench, state

    def scene(self) -> BlockScene:
        none = self._state.positions.new_zeros(0)
        return BlockScene(render(self._state), none, bench=self._bench, states=self._state)

    def act(self, action: int) -> str:
        done = torch.tensor([action], device=self._state.positions.device)
        self._state, event = happens(self._state, done, self._bench.stay)
        return event


def happens(state: State, action: Tensor, stay: bool) -> tuple[State, str]:
    """One step of one world, and what happened in a word."""
    after, outcome = step(state, action, stay)
    name = Outcome(int(outcome)).name.lower()
    if name == "push":
        mover = int(action) // (5 if stay else 4)
        moved = (after.positions != state.positions).any(-1)[0]
        pushed = next(block for block in moved.nonzero().flatten().tolist() if block != mover)
        return after, f"push {mover}→{pushed}"
    return after, {"invalid": "blocked"}.get(name, name)
