"""Play with a tower: MuJoCo lets it fall and be pushed, and the model imagines what comes next.

The tower is one that falls by itself, as those that models learn from. A seed means the same tower
as for `nps/Tower-v0` with `falls=True`, or, if that stands in spite of its broken level, the next
one that is drawn. The model sees its first picture, and nothing after that.

RPIN reads one picture of a tower at rest, and is told of no actions: it cannot know of a push. So
the model looks again after one. Its imagination starts from the picture just after the push, which
does not show how fast anything moves; for what moves already the model is no more than a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from nps.experiments.stacks.falls import Fall, fall_of, happened, names_of
from nps.inspect.recording import recorded
from nps.inspect.workbench import Moment, Parted, World, require_index
from nps.worlds.stacks import Episodes
from nps.worlds.stacks.camera import axes
from nps.worlds.stacks.making import falling_tower
from nps.worlds.stacks.physics import Simulator

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from numpy import ndarray
    from torch import Tensor

    from nps.experiments.stacks.workbench import StacksWorkbench

SHAPES = 3
"""Of the towers that models learn from."""
SPEED = 2.0
"""What a push adds to a shape's velocity, in units a second; a cube's side is 1 unit."""
APART = 0.07
"""The imagination has left the world once a centre is farther than this share of the picture's side
from the true one: half the side of a cube in the middle of the room."""
WAIT = 0
DIRECTIONS = {"right": "ArrowRight", "left": "ArrowLeft", "away": "ArrowUp", "nearer": "ArrowDown"}
"""As the camera sees them, with their keys. Action 1 + 4 m + d pushes shape m in the d-th."""
KEYS = {key: [1 + len(DIRECTIONS) * m + d for m in range(SHAPES)]
        for d, key in enumerate(DIRECTIONS.values())} | {"w": [WAIT]}  # fmt: skip


def action_names(shapes: Sequence[str]) -> list[str]:
    """In their order; what shapes are called differs from tower to tower."""
    return ["wait", *(f"push {shape} {direction}" for shape in shapes for direction in DIRECTIONS)]


def pushes() -> Float[ndarray, "4 3"]:
    """Level velocities in the world, in the order of `DIRECTIONS`."""
    right, _, back = axes().T.double().numpy()
    away = -back * (1.0, 1.0, 0.0)
    away /= np.linalg.norm(away)
    return SPEED * np.stack([right, -right, away, -away])


class TowerWorld(World):
    """
    Args:
        bench: of the model.
        seed: of the tower.
    """

    def __init__(self, bench: StacksWorkbench, seed: int) -> None:
        require_index("seed", seed, 2**31)
        self._bench = bench
        self._tower = falling_tower(np.random.default_rng(seed), SHAPES)
        self._simulator = Simulator(self._tower)
        self._touching: Bool[ndarray, "M+1 M+1"] = self._simulator.touching()
        self._colours, self.slot_names = names_of(self._seen())
        self.actions = action_names(self.slot_names)
        self._step = 0
        self._moment: Moment | None = None

    def now(self) -> Moment:
        if self._moment is None:  # to look takes time, and not everyone who opens a world does
            self._moment = self._look("")
        return self._moment

    @torch.no_grad()
    def act(self, action: int) -> Moment:
        require_index("action", action, len(self._bench.actions))
        self.now()
        if action != WAIT:
            shape, direction = divmod(action - 1, len(DIRECTIONS))
            self._simulator.push(shape, pushes()[direction])
        before, self._touching = self._touching, self._simulator.frame()
        new = torch.from_numpy(self._touching & ~before)
        event = happened(new[:SHAPES, :SHAPES], new[:SHAPES, SHAPES], self._colours)
        self._step += 1
        if action == WAIT:
            self._moment = self._imagine(event)
        else:
            self._moment = self._look(", ".join(filter(None, ["the model looks again", event])))
        return self._moment

    def _seen(self) -> Episodes:
        """The tower as it stands, as one frame of one episode."""
        tower, world, touching = self._tower, self._simulator, torch.from_numpy(self._touching)
        return Episodes(
            torch.from_numpy(tower.kind).long()[None],
            torch.from_numpy(tower.size).float()[None],
            torch.from_numpy(tower.colour).long()[None],
            torch.tensor([tower.breaks]),
            torch.from_numpy(world.position)[None, None],
            torch.from_numpy(world.rotation)[None, None],
            touching[None, None, :SHAPES, :SHAPES],
            touching[None, None, :SHAPES, SHAPES],
        )

    def _true(self) -> Fall:
        device = self._bench.task.device
        return fall_of(Episodes(*(part.to(device) for part in self._seen())))

    @torch.no_grad()
    def _look(self, event: str) -> Moment:
        """The imagination starts from what is true now."""
        self._looked, self._fall = self._step, self._true()
        self._state: Tensor = self._bench.start(self._fall)
        self._parted: Parted | None = None
        self._last = np.full(SHAPES, -1)
        return self._show(event, np.zeros((0, SHAPES), int), np.zeros((0, SHAPES), int))

    def _imagine(self, event: str) -> Moment:
        """The imagination goes on by a frame."""
        bench, true = self._bench, self._true()
        with recorded(bench.layer) as recorder:
            self._state = bench.advance(self._fall, self._state, self._since - 1)
        self._fall = replace(
            self._fall,
            images=torch.cat([self._fall.images, true.images]),
            centres=torch.cat([self._fall.centres, true.centres]),
        )
        record = recorder.record()
        if record is None:
            return self._show(event, self._last[:0, None], self._last[:0, None])
        for fired in record.rule[0]:
            self._last = np.where(fired >= 0, fired, self._last)
        return self._show(event, record.rule[0], record.context[0])

    @property
    def _since(self) -> int:
        """Steps since the model looked."""
        return self._step - self._looked

    def _show(self, event: str, rule: Int[ndarray, "K M"], context: Int[ndarray, "K M"]) -> Moment:
        frame = self._bench.frame(self._fall, self._state, self._since)
        assert frame.away is not None
        right = bool((frame.away < APART).all())
        if not right and self._parted is None:
            slot = int(frame.away.argmax())
            fired = None if self._bench.layer is None else int(self._last[slot])
            self._parted = Parted(self._step, slot, fired)
        return Moment(
            self._step,
            frame.true,
            frame.predicted,
            right,
            frame.error,
            event,
            rule.tolist(),
            context.tolist(),
            frame.places,
            self._parted,
            self._looked,
        )
