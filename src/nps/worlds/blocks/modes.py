"""The modes of the weighted blocks: how an episode's weights, colours and shapes are sampled.

`observed`, `unobserved`, `fixed-unobserved` and their tests are from Ke et al. (2021); the paper
describes `unobserved`. `fixed-palette` is ours: episodes differ in positions only. `shapes` are
C-SWM's 2D shapes, where nothing is pushed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.worlds.blocks import palette
from nps.worlds.blocks.drawing import SHAPES
from nps.worlds.blocks.dynamics import GRID, State

if TYPE_CHECKING:
    from jaxtyping import Int8

    from nps.worlds.blocks.palette import Weighted

TRAINED_SHAPES = 3
OBJECTS = range(2, len(SHAPES) + 1)


class Mode(NamedTuple):
    """Samplers of the constant part of an episode, called with count, objects, generator."""

    weighted: Callable[[int, int, torch.Generator], Weighted]
    shapes: Callable[[int, int, torch.Generator], Int8[Tensor, "B M"]]


def any_of(kinds: int, count: int, objects: int, draw: torch.Generator) -> Int8[Tensor, "B M"]:
    """Each block has a random one of the first shapes, independent of its weight."""
    shapes = torch.randint(kinds, (count, objects), generator=draw, device=draw.device)
    return shapes.to(torch.int8)


def in_turn(kinds: int, count: int, objects: int, draw: torch.Generator) -> Int8[Tensor, "B M"]:
    """The first shapes in turn, the same in every episode."""
    shapes = torch.arange(objects, dtype=torch.int8, device=draw.device) % kinds
    return shapes.expand(count, objects).clone()


_ANY = partial(any_of, TRAINED_SHAPES)
_ANY_NEW = partial(any_of, len(SHAPES))
_OWN = partial(in_turn, len(SHAPES))
_THREE = partial(in_turn, TRAINED_SHAPES)
_SHADES = partial(palette.shades, spread=1 / 8)

MODES: dict[str, Mode] = {
    "observed": Mode(_SHADES, _ANY),
    "observed-test-1": Mode(partial(palette.shades, spread=1 / 4), _ANY),
    "observed-test-2": Mode(partial(palette.shades, spread=1 / 3), _ANY),
    "observed-test-3": Mode(partial(palette.shades, spread=1 / 2), _ANY),
    "observed-zero-shot": Mode(palette.any_shades, _ANY),
    "observed-zero-shot-shape": Mode(_SHADES, _ANY_NEW),
    "unobserved": Mode(palette.set1, _ANY),
    "unobserved-zero-shot-shape": Mode(palette.set1, _ANY_NEW),
    "unobserved-few-shot-1": Mode(partial(palette.set1, new=1), _ANY),
    "unobserved-few-shot-2": Mode(partial(palette.set1, new=2), _ANY),
    "unobserved-few-shot-3": Mode(partial(palette.set1, new=3), _ANY),
    "fixed-unobserved": Mode(palette.set1, _OWN),
    "fixed-unobserved-few-shot-1": Mode(partial(palette.set1, new=1), _OWN),
    "fixed-unobserved-few-shot-2": Mode(partial(palette.set1, new=2), _OWN),
    "fixed-unobserved-few-shot-3": Mode(partial(palette.set1, new=3), _OWN),
    "fixed-palette": Mode(palette.first, _THREE),
    "shapes": Mode(palette.weightless, _THREE),
}


def start(
    count: int, mode: str = "unobserved", generator: torch.Generator | None = None, objects: int = 5
) -> State:
    """Start `count` episodes: blocks in different cells, all placements equally likely.

    Args:
        count: number of worlds B.
        mode: a name in `MODES`.
        generator: random generator; the state is on its device. None: torch's own, on the CPU.
        objects: number of blocks M, 2 to 6.
    """
    if count < 1:
        raise ValueError(f"count: got {count}, expected at least 1")
    if mode not in MODES:
        raise ValueError(f"mode: got {mode!r}, expected one of {', '.join(MODES)}")
    if objects not in OBJECTS:
        raise ValueError(f"objects: got {objects}, expected {OBJECTS[0]} to {OBJECTS[-1]}")
    draw = torch.default_generator if generator is None else generator
    score = torch.rand(count, GRID * GRID, generator=draw, device=draw.device)
    cell = score.argsort(-1)[:, :objects]
    positions = torch.stack([cell // GRID, cell % GRID], -1).to(torch.int8)
    weights, colours = MODES[mode].weighted(count, objects, draw)
    return State(positions, weights, MODES[mode].shapes(count, objects, draw), colours)
