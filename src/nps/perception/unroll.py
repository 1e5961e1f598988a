"""An image of few channels, laid out as one of many: windows along a line become channels.

cuDNN's fast kernels want channels in multiples of eight, and 64 of them on the way out. Two
neighbouring pixels together see K + 1 pixels of a line: with three channels and K = 9 that is 30
numbers, 32 with zeros. Laid out side by side, they make the convolution one of K × 1 windows with
32 channels, which gives both pixels at once: half as many rows, twice as many channels, and little
more arithmetic. Bytes become numbers from 0 to 1 on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.perception.convolution import numbers

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

FEW = 8
"""So many channels cuDNN reads at once."""


def few(image: Shaped[Tensor, "B H W C"], weight: Float[Tensor, "out C K K"]) -> bool:
    """Are there few channels, and can pixels be taken in pairs?"""
    return image.shape[-1] < FEW and image.shape[2] % 2 == 0 and weight.shape[-1] % 2 == 1


def wide(channels: int, kernel: int) -> int:
    """How many channels the layout has: what two pixels see, up to a multiple of eight."""
    return -(-(kernel + 1) * channels // FEW) * FEW


def widened(weight: Float[Tensor, "out C K K"]) -> Float[Tensor, "2*out wide K 1"]:
    """The same convolution's weights for that layout, those of the left pixel first."""
    channels, kernel = weight.shape[1], weight.shape[-1]
    lines = weight.permute(0, 2, 3, 1)
    shifted = torch.stack([F.pad(lines, (0, 0, p, 1 - p)) for p in (0, 1)]).flatten(3)
    shifted = F.pad(shifted, (0, wide(channels, kernel) - shifted.shape[-1]))
    return shifted.flatten(0, 1).movedim(-1, 1).unsqueeze(-1)


def unroll(
    image: Shaped[Tensor, "B H W C"], kernel: int, kind: torch.dtype
) -> Float[Tensor, "B H W/2 wide"]:
    """What every pair of pixels sees of its line, zeros beyond the border."""
    result: Tensor = Unroll.apply(image, kernel, kind)
    return result


class Unroll(torch.autograd.Function):
    """The layout, with its gradient; seeds of a stack are nothing but more images."""

    @staticmethod
    def forward(image: Tensor, kernel: int, kind: torch.dtype) -> Tensor:
        flat = image.flatten(0, -4)
        if kernels.possible(image):
            from nps.perception.unroll_kernels import unrolled

            result = unrolled(flat.contiguous(), kernel, wide(image.shape[-1], kernel), kind)
        else:
            result = _plain(flat, kernel, kind)
        laid_out: Tensor = result.unflatten(0, image.shape[:-3])
        return laid_out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.image, ctx.kernel = inputs[0].shape, inputs[1]
        ctx.kind = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Every pixel gets what all pairs that saw it have for it."""
        *images, height, width, channels = ctx.image
        window, around = ctx.kernel + 1, ctx.kernel // 2
        seen = gradient[..., : window * channels].unflatten(-1, (window, channels))
        total = seen.new_zeros(*images, height, width + 2 * around, channels)
        for j in range(window):
            total[..., j : j + width : 2, :] += seen[..., j, :]
        return total[..., around : around + width, :].to(ctx.kind), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        image, kernel, kind = inputs
        return Unroll.apply(image.movedim(in_dims[0], 0), kernel, kind), 0


def _plain(image: Tensor, kernel: int, kind: torch.dtype) -> Tensor:
    """By torch."""
    channels, around = image.shape[-1], kernel // 2
    lines = F.pad(numbers(image).to(kind), (0, 0, around, around)).flatten(2)
    seen = lines.unfold(2, (kernel + 1) * channels, 2 * channels)
    return F.pad(seen, (0, wide(channels, kernel) - seen.shape[-1]))
