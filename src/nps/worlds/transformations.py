"""The operations of the MNIST transformation task (paper, section 4.1), for a batch on any device.

A digit on a black square is rotated or shifted by fixed amounts; what leaves the square is lost and
border pixels fill the gap. All operations are affine, so each is a 2 × 3 matrix, and a batch of
different operations is one gather and one resampling.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8

OPERATIONS = ("rotate_right", "rotate_left", "translate_up", "translate_down")
"""The paper's four."""
EVERY_OPERATION = (*OPERATIONS, "flip")
"""With a fifth one to be learned later: a left-right flip."""

SIZE = 64
"""Height and width of a square in pixels."""


def matrices(rotation: float = 60.0, shift: float = 0.2) -> Float[Tensor, "5 2 3"]:
    """For each operation of `EVERY_OPERATION`, where its pixels come from.

    Args:
        rotation: degrees.
        shift: fraction of the square's size.

    Returns:
        From (x, y, 1) in the new image to (x, y) in the old; both run from -1 to 1, y downwards.
    """
    cos, sin = math.cos(math.radians(rotation)), math.sin(math.radians(rotation))
    return torch.tensor(
        [
            [[cos, sin, 0.0], [-sin, cos, 0.0]],
            [[cos, -sin, 0.0], [sin, cos, 0.0]],
            [[1.0, 0.0, 0.0], [0.0, 1.0, 2.0 * shift]],
            [[1.0, 0.0, 0.0], [0.0, 1.0, -2.0 * shift]],
            [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
        ]
    )


def paste(digits: UInt8[Tensor, "B 28 28"], size: int = SIZE) -> Float[Tensor, "B size size"]:
    """Digits in the centre of black squares, from 0 to 1."""
    before = (size - digits.shape[-1]) // 2
    after = size - digits.shape[-1] - before
    return F.pad(digits, (before, after, before, after)).float() / 255.0


def transform(
    images: Float[Tensor, "B H W"],
    operation: Int[Tensor, "B"],
    matrices: Float[Tensor, "O 2 3"],
) -> Float[Tensor, "B H W"]:
    """Each image under its operation, interpolated between pixels.

    Args:
        images: squares.
        operation: indices into `matrices`.
        matrices: from `matrices()`, on the images' device.
    """
    grid = _places(matrices[operation], images.shape[-1])
    moved: Tensor = F.grid_sample(
        images.unsqueeze(1), grid, mode="bilinear", padding_mode="border", align_corners=False
    )
    return moved.squeeze(1)


def _places(matrix: Float[Tensor, "B 2 3"], size: int) -> Float[Tensor, "B size size 2"]:
    """Same as `F.affine_grid`, which torch.func.vmap would run one by one.

    Sums instead of a matrix product, which in TF32 or bfloat16 would be wrong by parts of a pixel.
    """
    along = (2.0 * torch.arange(size, device=matrix.device) + 1.0) / size - 1.0
    x, y = along.view(1, -1, 1), along.view(-1, 1, 1)
    per_x, per_y, fixed = matrix[:, None, None].unbind(-1)
    return x * per_x + y * per_y + fixed
