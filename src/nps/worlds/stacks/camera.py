"""The camera of ShapeStacks' first view, as RPIN's videos have it: rays of pixels, and projection.

A picture is square. Its columns and rows count in pixels from the upper left corner.
"""

from __future__ import annotations

from math import cos, radians, sin, tan
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

PIXELS = 224
PLACE = (-7.0, -7.0, 5.0)
TILT, TURN = radians(75.0), radians(-45.0)
"""Turned about the first axis, then about the upright one; before, it looks straight down."""
VIEW = radians(35.0)
"""Angle between the upper and the lower edge of the picture."""


def axes(device: torch.device | str = "cpu") -> Float[Tensor, "3 3"]:
    """Columns: the directions to the right, up, and back in the world."""
    right = (cos(TURN), sin(TURN), 0.0)
    up = (-sin(TURN) * cos(TILT), cos(TURN) * cos(TILT), sin(TILT))
    back = (sin(TURN) * sin(TILT), -cos(TURN) * sin(TILT), cos(TILT))
    return torch.tensor([right, up, back]).T.to(device)


def place(device: torch.device | str = "cpu") -> Float[Tensor, "3"]:
    return torch.tensor(PLACE).to(device)


def times(
    vectors: Float[Tensor, "*batch R 3"], matrix: Float[Tensor, "*#batch 3 3"]
) -> Float[Tensor, "*batch R 3"]:
    """vectors @ matrix, in sums: a product rounds to bf16 under autocast, or to TF32, which is
    pixels. With one matrix for all vectors these may have any shape."""
    rows = matrix.unbind(-2) if matrix.dim() == 2 else matrix.unsqueeze(-3).unbind(-2)
    x, y, z = (part.unsqueeze(-1) for part in vectors.unbind(-1))
    result: Tensor = x * rows[0] + y * rows[1] + z * rows[2]
    return result


def project(points: Float[Tensor, "*batch 3"], pixels: int = PIXELS) -> Float[Tensor, "*batch 2"]:
    """Column and row at which points of the world appear."""
    right, up, back = times(points - place(points.device), axes(points.device)).unbind(-1)
    scale = pixels / (2 * tan(VIEW / 2))
    return torch.stack([pixels / 2 - scale * right / back, pixels / 2 + scale * up / back], -1)


def rays(at: Float[Tensor, "*batch 2"], pixels: int = PIXELS) -> Float[Tensor, "*batch 3"]:
    """Unit vectors from the camera through columns and rows of the picture."""
    column, row = at.unbind(-1)
    scale = 2 * tan(VIEW / 2) / pixels
    right, up = scale * (column - pixels / 2), scale * (pixels / 2 - row)
    towards = times(torch.stack([right, up, -torch.ones_like(right)], -1), axes(at.device).T)
    return torch.nn.functional.normalize(towards, dim=-1)


def grid(
    size: int, pixels: int = PIXELS, device: torch.device | str = "cpu"
) -> Float[Tensor, "size*size 2"]:
    """Columns and rows of the centres of `size` × `size` samples of the whole picture."""
    along = (torch.arange(size, device=device) + 0.5) * (pixels / size)
    down, right = torch.meshgrid(along, along, indexing="ij")
    return torch.stack([right, down], -1).flatten(0, 1)
