"""What anyone gets on scenes of bouncing balls without a model: the floors beside every metric.

Segments: a fixed grid, colours alone, the true segments of the frame before. Roll-outs: everything
stays where it was, or the grid again. Collisions: each ball is said to bump into the ball that is
nearest to it in the frame before, or into any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from nps.experiments.balls.collisions import Statements, best_threshold, count_loud, count_pairs
from nps.experiments.balls.measures import (
    Measured,
    channels_first,
    colour_segments,
    grid_segments,
    mean_where,
    segmentation,
    squared_error,
    tables,
    visible,
)
from nps.worlds.balls import COLOURS, Scenes

if TYPE_CHECKING:
    from jaxtyping import UInt8

NEAREST, RANDOM = "nearest_", "random_"
"""Before the names of counts, and of the metrics made of them."""
GRID = 9
"""Cells of the fixed grid."""


def all_floors(
    scenes: Scenes,
    images: UInt8[Tensor, "B T H W 3"],
    labels: UInt8[Tensor, "B T H W"],
    seen: int,
    near: float | None,
) -> Measured:
    """Of the frames with input, and of those after them.

    Args:
        scenes: what is true.
        images, labels: the scenes as pictures.
        seen: number of frames with input.
        near: what `closeness` found.
    """
    objects = scenes.present.shape[1] + 1
    return {
        **still(scenes, labels, images, seen),
        **grid_rollout(labels[:, 1 + seen :], objects),
        **segments(scenes, labels[:, 1 : 1 + seen], objects),
        **bumps(scenes, seen, near),
    }


def segments(scenes: Scenes, labels: UInt8[Tensor, "B T H W"], objects: int) -> Measured:
    """A fixed grid, colours alone, the true segments of the frame before."""
    now, before = labels[:, 1:], labels[:, :-1]
    found = {
        "grid": (grid_segments(now), GRID),
        "colour": (colour_segments(now, scenes.colour), COLOURS + 1),
        "copy": (before, objects),
    }
    return {
        f"{floor}_{name}": values
        for floor, (segment, count) in found.items()
        for name, values in segmentation(tables(now, segment, objects, count)).items()
    }


def still(
    scenes: Scenes,
    labels: UInt8[Tensor, "B T H W"],
    images: UInt8[Tensor, "B T H W 3"],
    seen: int,
) -> Measured:
    """The floor of a roll-out: everything stays where it was in the last frame with input."""
    last, objects = slice(seen - 1, seen), scenes.present.shape[1] + 1
    late, balls = labels[:, 1 + seen :], visible(labels[:, 1 + seen :], objects - 1)
    agreement = segmentation(tables(late, labels[:, last].expand_as(late), objects, objects))
    error = squared_error(channels_first(images[:, last]), images[:, 1 + seen :])
    away = (scenes.position[:, 1 + seen :] - scenes.position[:, last]).norm(dim=-1)
    return {
        "copy_rollout_mse": error.flatten(1).mean(1),
        "copy_rollout_fg_ari": agreement["fg_ari"],
        "copy_rollout_video_fg_miou": agreement["video_fg_miou"],
        "copy_rollout_position": mean_where(away, balls),
    }


def grid_rollout(late: UInt8[Tensor, "B T H W"], objects: int) -> Measured:
    """What a roll-out's segments are worth that are cells of a fixed grid."""
    agreement = segmentation(tables(late, grid_segments(late), objects, GRID))
    return {
        "grid_rollout_fg_ari": agreement["fg_ari"],
        "grid_rollout_video_fg_miou": agreement["video_fg_miou"],
    }


def nearest_ball(scenes: Scenes, seen: int) -> Statements:
    """Each ball is said to bump into the one whose surface is nearest to its own in the frame
    before, more strongly the nearer they are. That takes true positions, and no model."""
    position, radius = scenes.position[:, 1:seen], scenes.radius
    apart = (position.unsqueeze(-2) - position.unsqueeze(-3)).norm(dim=-1)
    gap = apart - (radius.unsqueeze(-1) + radius.unsqueeze(-2))[:, None]
    own = torch.eye(radius.shape[1], dtype=torch.bool, device=radius.device)
    both = (scenes.present.unsqueeze(-1) & scenes.present.unsqueeze(-2) & ~own)[:, None]
    gap = gap.masked_fill(~both, torch.inf)
    told = F.one_hot(gap.argmin(-1), radius.shape[1]).bool() & both
    strength = 1.0 / (1.0 + gap.amin(-1).clamp(min=0.0))
    return Statements(told, strength, scenes.collided[:, 2 : 1 + seen])


def closeness(scenes: Scenes, seen: int) -> float | None:
    """How near a ball has to be for that to tell of a collision, on validation scenes."""
    strength, true, collided = nearest_ball(scenes, seen).flat()
    return best_threshold(strength, true, int(collided.sum()))


def bumps(scenes: Scenes, seen: int, near: float | None) -> Measured:
    """Who bumped whom, as in `collisions`: the nearest ball, and apart where it is near. What is
    expected of a random other ball is the chance of naming one for every ball in every frame."""
    told, strength, collided = nearest_ball(scenes, seen)
    paired = count_pairs(told, collided, scenes.present)
    counted = {f"{floor}{n}": x for floor in (NEAREST, RANDOM) for n, x in paired.items()}
    named = {RANDOM: told}
    if near is not None:
        named[NEAREST] = told & (strength > near).unsqueeze(-1)
    for floor, loud in named.items():
        loudly = count_loud(loud, collided, scenes.present)
        counted |= {f"{floor}{n}": x for n, x in loudly.items()}
    return counted
