"""Predicted boxes and masks as pictures: shapes in their true colours before the empty room."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from nps.worlds.stacks import PALETTE, Shapes, render
from nps.worlds.stacks.camera import grid

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8

PIXELS = 112
BEHIND = (-50.0, -50.0, 5.0)
"""A place that the camera does not see."""
SMALLEST = 1e-3
"""Side of a box, in sides of the picture."""


def spread(
    masks: Float[Tensor, "*batch M m m"], boxes: Float[Tensor, "*batch M 4"]
) -> Float[Tensor, "*batch M PIXELS PIXELS"]:
    """Masks in their boxes: how much of each pixel belongs to each shape.

    Args:
        masks: from 0 to 1.
        boxes: column and row of the centre, width and height, in sides of the picture.
    """
    one_by_one = masks.flatten(0, -3).unsqueeze(1)
    middle, side = boxes.flatten(0, -2).unsqueeze(1).split(2, -1)
    within = 2 * (grid(PIXELS, 1, masks.device) - middle) / side.clamp(min=SMALLEST)
    within = within.view(-1, PIXELS, PIXELS, 2)
    shown = F.grid_sample(one_by_one, within, padding_mode="zeros", align_corners=False)
    return shown.view(*masks.shape[:-2], PIXELS, PIXELS)


def paint(
    shares: Float[Tensor, "*batch M PIXELS PIXELS"], colour: Int[Tensor, "M"]
) -> UInt8[Tensor, "*batch PIXELS PIXELS 3"]:
    """Shapes in their colours, the lowest first."""
    picture = empty_room(shares.device).float()
    ink = torch.tensor(PALETTE, dtype=picture.dtype, device=shares.device)
    for share, number in zip(shares.unsqueeze(-1).unbind(-4), colour, strict=True):
        picture = torch.lerp(picture, ink[number], share)
    return picture.round().to(torch.uint8)


@cache
def empty_room(device: torch.device) -> UInt8[Tensor, "PIXELS PIXELS 3"]:
    nothing = Shapes(
        torch.zeros(1, 1, dtype=torch.long, device=device),
        torch.full((1, 1, 3), 0.1, device=device),
        torch.tensor(BEHIND, device=device).view(1, 1, 3),
        torch.tensor((1.0, 0.0, 0.0, 0.0), device=device).view(1, 1, 4),
    )
    return render(nothing, nothing.kind, pixels=PIXELS)[0]
