"""One fall of a tower as the workbench shows it: pictures, names, and what happens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.experiments.stacks.painting import PIXELS
from nps.experiments.stepping import Episode
from nps.worlds import stacks
from nps.worlds.stacks import KINDS, Episodes

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, UInt8

COLOURS = ("red", "green", "blue", "yellow", "cyan", "magenta")


@dataclass(frozen=True)
class Fall(Episode):
    tower: Episodes
    """One of them."""
    images: UInt8[Tensor, "T+1 H W 3"]
    centres: Float[Tensor, "T+1 M 2"]
    """Columns and rows."""


def fall_of(tower: Episodes) -> Fall:
    """All frames of one tower."""
    frames = tower.position.shape[1]
    images = [stacks.render(tower.shapes(t), tower.colour, pixels=PIXELS, samples=1)
              for t in range(frames)]  # fmt: skip
    colours, names = names_of(tower)
    touched, grounded = tower.touched[0], tower.grounded[0]
    meets, lands = touched[1:] & ~touched[:-1], grounded[1:] & ~grounded[:-1]
    events = tuple(happened(*new, colours) for new in zip(meets, lands, strict=True))
    centres = stacks.centres(tower.position[0])
    return Fall(events, names, None, tower, torch.cat(images), centres)


def names_of(tower: Episodes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Colours of the shapes, and colours with kinds; no two shapes have the same colour."""
    colours = tuple(COLOURS[i] for i in tower.colour[0].tolist())
    kinds = (KINDS[i] for i in tower.kind[0].tolist())
    return colours, tuple(f"{colour} {kind}" for colour, kind in zip(colours, kinds, strict=True))


def happened(meets: Bool[Tensor, "M M"], lands: Bool[Tensor, "M"], names: Sequence[str]) -> str:
    """In words: which shapes meet, or reach the floor or a wall, in a step."""
    met = meets.tolist()
    pairs = itertools.combinations(range(len(names)), 2)
    said = [f"{names[i]} meets {names[j]}" for i, j in pairs if met[i][j]]
    landed = zip(names, lands.tolist(), strict=True)
    return ", ".join([*said, *(f"{name} lands" for name, now in landed if now)])
