"""Coordinate arithmetic in the workbench: chains of operations, which the model imitates.

The model is shown points before and after an operation, and has to find rule, point and argument.
In the workbench each step is such a demonstration by the true points, and the rule that it calls
for is applied to the model's own points, which start as the true ones. So a wrong choice is carried
on, and so is whatever is changed by hand. Without mistakes, each step is a prediction as in
training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nps.experiments.arithmetic.drawing import HIGH, LOW, draw, places
from nps.experiments.arithmetic.task import ArithmeticTask
from nps.experiments.following import FollowedWorld
from nps.experiments.stepping import Episode, Frame, SteppedWorkbench, require_feature
from nps.inspect.edits import Edits, Placed
from nps.inspect.playback import Playback
from nps.inspect.workbench import World, require_index
from nps.models.arithmetic import COORDINATES, CoordinateArithmetic
from nps.worlds.arithmetic import OPERATIONS, POINTS

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

STEPS = 8
LEAST = 0.05
"""Operations of a chain that is made change a coordinate by at least this much, if any does."""
TOLERANCE = 0.05
"""A point is where it should be if it is nearer than that, about its drawn radius."""
NAMES = ("A", "B")
WRITTEN = ("x += {}.x", "x -= {}.x", "y += {}.y", "y -= {}.y")
"""The operations."""
ARROWS = ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown")
"""Keys of the operations, in their order."""
AXES = {"column": ("x", LOW, HIGH), "row": ("y", HIGH, LOW)}
"""Places in the picture: the coordinate, and its values at 0 and 1."""


@dataclass(frozen=True)
class Chain(Episode):
    points: Float[ndarray, "T+1 2 2"]
    """Where the points truly are, as (x, y)."""


class ArithmeticWorkbench(SteppedWorkbench[Chain, Tensor]):
    """Its state is the model's points."""

    task: ArithmeticTask
    model: CoordinateArithmetic
    fps = 1.0
    error_name = "squared error"
    decodes = True
    feature_names = COORDINATES
    drags = True

    def __init__(self, task: ArithmeticTask, model: CoordinateArithmetic) -> None:
        super().__init__(task, model)
        others = [(p, 1 - p, o) for p in range(POINTS) for o in range(len(OPERATIONS))]
        own = [(p, p, o) for p, _, o in others] if task.config.reading == "any" else []
        self._moves = [*others, *own]
        """Of each action: primary point, contextual point, operation."""
        self.actions = [f"{NAMES[p]}.{WRITTEN[o].format(NAMES[c])}" for p, c, o in self._moves]
        count = len(OPERATIONS)
        self.keys = {key: (o, count + o) for o, key in enumerate(ARROWS)}

    def count(self) -> int:
        return len(self.task.truth["validation"].operation)

    def play(self, episode: int, edits: Edits = Edits()) -> Playback:  # noqa: B008, it is frozen
        """Rows and columns of the picture may be placed as well as y and x."""
        return super().play(episode, replace(edits, placed=in_points(edits.placed)))

    def features(self, slots: Float[ndarray, "*batch M 2"]) -> Float[ndarray, "*batch M 2"]:
        return slots

    def direction(self, feature: str) -> Float[ndarray, "2"]:
        along: ndarray = np.eye(2, dtype=np.float32)[require_feature(self, feature)]
        return along

    # -- what is true -------------------------------------------------------------------------

    def episode(self, number: int, acted: Mapping[int, int]) -> Chain:
        start = self.task.truth["validation"].before[number].numpy()
        draw = np.random.default_rng((self.task.config.data_seed, number))
        points, actions = start, []
        for _ in range(STEPS):
            actions.append(self._random_action(points, draw))
            points = self._moved(points, actions[-1])
        return self._chain(start, [acted.get(step, a) for step, a in enumerate(actions)])

    def _chain(self, start: Float[ndarray, "2 2"], actions: Sequence[int]) -> Chain:
        points = [start]
        for action in actions:
            points.append(self._moved(points[-1], action))
        events = tuple(OPERATIONS[self._moves[action][2]] for action in actions)
        names = tuple(f"point {name}" for name in NAMES)
        return Chain(events, names, np.array(actions, int), np.stack(points))

    def _moved(self, points: Float[ndarray, "2 2"], action: int) -> Float[ndarray, "2 2"]:
        primary, context, operation = self._moves[action]
        axis, sign = operation // 2, 1 - 2 * (operation % 2)
        new = points.copy()
        new[primary, axis] += sign * points[context, axis]
        return new

    def _random_action(self, points: Float[ndarray, "2 2"], draw: np.random.Generator) -> int:
        """One after which the points are still within the unit square, as in training before an
        operation."""
        after = np.stack([self._moved(points, action) for action in range(len(self._moves))])
        inside = ((after >= 0) & (after < 1)).all((1, 2))
        far = np.abs(after - points).max((1, 2)) >= LEAST
        alive = (after >= LEAST).all((1, 2))  # or chains end with both points at the corner
        for wanted in (inside & far & alive, inside & far, inside):
            if wanted.any():
                return int(draw.choice(np.flatnonzero(wanted)))
        return int(draw.integers(len(self._moves)))

    # -- what the model makes of it -----------------------------------------------------------

    def start(self, episode: Chain) -> Tensor:
        return torch.from_numpy(episode.points[0]).to(self.task.device)

    def advance(self, episode: Chain, state: Tensor, step: int) -> Tensor:
        before, after = torch.from_numpy(episode.points[step : step + 2]).to(state)
        shown = torch.cat([before, after], -1)
        new: Tensor = self.model.layer(state.unsqueeze(0), selection=shown.unsqueeze(0))
        return new.squeeze(0)

    def slots_of(self, state: Tensor) -> Tensor:
        return state

    def with_slots(self, state: Tensor, slots: Tensor) -> Tensor:
        return slots

    def frame(self, episode: Chain, state: Tensor, step: int) -> Frame:
        true, own = episode.points[step], state.cpu().numpy()
        away = np.linalg.norm(own - true, axis=-1)
        return Frame(
            draw(true),
            draw(own),
            own,
            error=float(np.square(own - true).mean()),
            right=bool((away < TOLERANCE).all()),
            places=places(own).clip(0.0, 1.0),
            away=away,
        )

    def world(self, seed: int) -> World:
        require_index("seed", seed, 2**31)
        draw = np.random.default_rng((self.task.config.data_seed, 1, seed))
        start = draw.random((POINTS, 2), dtype=np.float32)
        return FollowedWorld(self, partial(self._chain, start))


def in_points(edits: Sequence[Placed]) -> tuple[Placed, ...]:
    """Places in the picture as coordinates of points."""
    changed = []
    for edit in edits:
        if edit.feature in AXES:
            name, begin, end = AXES[edit.feature]
            edit = replace(edit, feature=name, value=begin + edit.value * (end - begin))
        changed.append(edit)
    return tuple(changed)
