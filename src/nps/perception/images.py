"""The size of the images that an encoder takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Shaped


def image_size(size: int | tuple[int, int]) -> tuple[int, int]:
    """(H, W), from either the side of a square or both."""
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise ValueError(f"size: got {size}, expected at least 1")
    return height, width


def require_images(images: Shaped[Tensor, "B H W C"], expected: tuple[int, int, int]) -> None:
    """Refuse images of another layout or size (H, W, C)."""
    if images.dim() != 4 or tuple(images.shape[1:]) != expected:
        sizes = ", ".join(map(str, expected))
        raise ValueError(f"images: got shape {tuple(images.shape)}, expected (B, {sizes})")
