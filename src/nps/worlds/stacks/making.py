"""Episodes of falling towers, simulated by several processes.

An episode is a function of (seed, set, index): the result does not depend on the number of
processes. A tower that stands in spite of its broken level is drawn again. Does not import torch,
so that processes start quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nps.worlds.processes import in_processes
from nps.worlds.stacks.physics import FALLING, FRAMES, Fall, simulate
from nps.worlds.stacks.towers import Tower, draw_tower

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, UInt8
    from numpy import ndarray

HEIGHTS = {"train": 3, "validation": 3, "test": 3, "four": 4}
"""Sets of episodes, and the number of shapes in their towers."""
TOGETHER = 20
"""Episodes that a process simulates before it returns them."""


@dataclass(frozen=True)
class Settings:
    """How many episodes of each set, and the seed."""

    train: int = 1_320
    validation: int = 200
    test: int = 296
    four: int = 296
    """Of towers of four shapes, for a test alone."""
    seed: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name == "seed" else 1
            if value < least:
                raise ValueError(f"{field.name}: got {value}, expected at least {least}")

    @property
    def episodes(self) -> int:
        return sum(getattr(self, name) for name in HEIGHTS)


class Falls(NamedTuple):
    """E episodes of T frames with M shapes; the lowest shape of a tower comes first."""

    kind: UInt8[ndarray, "E M"]
    size: Float32[ndarray, "E M 3"]
    colour: UInt8[ndarray, "E M"]
    breaks: UInt8[ndarray, "E"]
    """The shape on which the rest of the tower does not hold."""
    position: Float32[ndarray, "E T M 3"]
    rotation: Float32[ndarray, "E T M 4"]
    touched: Bool[ndarray, "E T M M"]
    """Which shapes touched each other since the frame before; in the first frame, at once."""
    grounded: Bool[ndarray, "E T M"]
    """Which touched the floor or a wall."""


class Part(NamedTuple):
    """Successive episodes of a set."""

    seed: int
    which: str
    first: int
    length: int


def make_all(
    settings: Settings,
    workers: int = 0,
    advance: Callable[[int], None] = lambda done: None,
) -> dict[str, Falls]:
    """Simulate all sets; the same episodes for any number of workers.

    Args:
        settings: how many episodes, and the seed.
        workers: processes that simulate; 0 simulates in this process.
        advance: called with the number of episodes made so far.
    """
    parts = [
        Part(settings.seed, name, first, min(TOGETHER, getattr(settings, name) - first))
        for name in HEIGHTS
        for first in range(0, getattr(settings, name), TOGETHER)
    ]
    made: dict[str, list[Falls]] = {name: [] for name in HEIGHTS}
    done = 0
    with closing(in_processes(make_part, parts, workers, "simulated towers")) as results:
        for part, result in zip(parts, results, strict=True):
            made[part.which].append(result)
            done += part.length
            advance(done)
    return {
        name: Falls(*(np.concatenate(x) for x in zip(*some, strict=True)))
        for name, some in made.items()
    }


def make_part(part: Part) -> Falls:
    number = list(HEIGHTS).index(part.which)
    episodes = [
        make_episode(np.random.default_rng((part.seed, number, i)), HEIGHTS[part.which])
        for i in range(part.first, part.first + part.length)
    ]
    return Falls(*(np.stack(x) for x in zip(*episodes, strict=True)))


def make_episode(draw: np.random.Generator, height: int = 3, frames: int = FRAMES) -> Falls:
    """One tower that falls, without the dimension E."""
    tower, fall = drawn_and_simulated(draw, height, frames)
    size, breaks = tower.size.astype(np.float32), np.array(tower.breaks, np.uint8)
    return Falls(tower.kind, size, tower.colour, breaks, *fall[:4])


def falling_tower(draw: np.random.Generator, height: int = 3, frames: int = FRAMES) -> Tower:
    """One tower that falls within some frames, before it does."""
    return drawn_and_simulated(draw, height, frames)[0]


def drawn_and_simulated(draw: np.random.Generator, height: int, frames: int) -> tuple[Tower, Fall]:
    """Towers that stand are drawn again."""
    while True:
        tower = draw_tower(draw, height)
        fall = simulate(tower, frames)
        if fall.speed > FALLING:
            return tower, fall
