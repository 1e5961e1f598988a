"""Images of sprites and their true segmentation, drawn on the device without host access.

A pixel belongs to the last sprite that its centre is inside of. The background is black.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.worlds.balls.drawing import Drawn
from nps.worlds.sprites.flying import CANVAS, COLOURS, Videos

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int64, UInt8


def render(videos: Videos, *, size: int = 64) -> Drawn:
    """Draw all frames; label 0 is the background, o + 1 the sprite in place o.

    Args:
        videos: what to draw.
        size: side of the images in pixels.
    """
    centres = (torch.arange(size, device=videos.position.device) + 0.5) * (CANVAS / size)
    half = videos.size / 2
    across, down = (
        (centres - videos.position[..., i, None]) / half[..., i, None] for i in (0, 1)
    )  # (B, T, O, size); -1 to 1 within the sprite
    inside = within(across.unsqueeze(-2), down.unsqueeze(-1), videos.shape[..., None, None])
    inside &= videos.present[..., None, None]
    number = torch.arange(1, inside.shape[2] + 1, device=inside.device, dtype=torch.uint8)
    labels = (inside * number[:, None, None]).amax(2)
    ink = _ink(inside.device)
    black = ink[-1].expand(*videos.colour.shape[:2], 1, 3)
    colours = torch.cat([black, ink[videos.colour]], 2)  # by label
    pixel = labels.flatten(2).long().unsqueeze(-1).expand(-1, -1, -1, 3)
    return Drawn(colours.gather(2, pixel).view(*labels.shape, 3), labels)


def within(
    x: Float[Tensor, "*batch"], y: Float[Tensor, "*batch"], shape: Int64[Tensor, "*#batch"]
) -> Bool[Tensor, "*batch"]:
    """Whether a point of the square from -1 to 1 is inside of a shape; y points down."""
    square = (x.abs() < 1) & (y.abs() < 1)
    circle = x.square() + y.square() < 1
    triangle = square & (2 * x.abs() < 1 + y)  # its tip is above
    diamond = x.abs() + y.abs() < 1
    drawn = torch.where(shape == 0, circle, square)
    return torch.where(shape == 2, triangle, torch.where(shape == 3, diamond, drawn))


@cache
def _ink(device: torch.device) -> UInt8[Tensor, "7 3"]:
    """The colours and, last, black; kept on the device, since a captured step cannot copy it."""
    return torch.tensor((*COLOURS, (0, 0, 0)), dtype=torch.uint8).to(device)
