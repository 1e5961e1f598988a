"""What is true about a picture of a tower: centres, boxes and masks of its shapes.

RPIN's boxes are squares of 70 pixels around a shape's centre, whatever its size; its masks are 28 ×
28 samples of such a square.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.worlds.stacks import camera
from nps.worlds.stacks.camera import PIXELS
from nps.worlds.stacks.drawing import segment
from nps.worlds.stacks.raycast import Shapes

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

BOX = 70 / PIXELS
"""Side of a box, in sides of the picture."""
MASK = 28
"""Samples of a mask along each side."""


def centres(position: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 2"]:
    """Columns and rows of the shapes' centres, in sides of the picture."""
    return camera.project(position, 1)


def boxes(position: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 4"]:
    """Left, upper, right and lower edges of the squares around the centres, in sides of the
    picture; they may lie outside of it."""
    return around(centres(position))


def around(centres: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch 4"]:
    """Edges of the squares around centres."""
    return torch.cat([centres - BOX / 2, centres + BOX / 2], -1)


def masks(shapes: Shapes, size: int = MASK) -> Bool[Tensor, "B M size size"]:
    """Where in its square each shape is seen: not behind another one."""
    b, m = shapes.kind.shape
    corner = boxes(shapes.position)[..., :2].unsqueeze(2)
    at = corner + camera.grid(size, 1, shapes.position.device) * BOX
    inside = ((at > 0) & (at < 1)).all(-1)
    seen = segment(shapes, at.flatten(1, 2), 1).view(b, m, size * size)
    number = torch.arange(1, m + 1, device=seen.device).view(1, m, 1)
    own: Tensor = ((seen == number) & inside).unflatten(-1, (size, size))
    return own


def tight_boxes(shapes: Shapes, pixels: int = PIXELS) -> Float[Tensor, "B M 4"]:
    """Edges of the smallest boxes around what is seen of each shape, in sides of the picture; zero
    for a shape that is not seen."""
    b, m = shapes.kind.shape
    seen = segment(shapes, pixels=pixels).view(b, 1, pixels, pixels)
    own = seen == torch.arange(1, m + 1, device=seen.device).view(1, m, 1, 1)
    edges = []
    for extent in (own.any(-2), own.any(-1)):  # columns, rows
        first = extent.to(torch.uint8).argmax(-1)
        last = pixels - extent.flip(-1).to(torch.uint8).argmax(-1)
        edges.append(torch.stack([first, last], -1))
    across, down = edges
    found = torch.stack([across[..., 0], down[..., 0], across[..., 1], down[..., 1]], -1) / pixels
    return found * own.any(-1).any(-1).unsqueeze(-1)
