"""An image of few channels laid out as one of many, for cuDNN: windows of a line become channels.

cuDNN's fast kernels require channels in multiples of eight, and do best with 64 on the way out. Two
neighbouring pixels together see K + 1 pixels of a line: with three channels and K = 9 these are 30
numbers, 32 with zeros. Side by side they turn the convolution into one of K × 1 windows with 32
channels, which yields both pixels at once: half as many rows, twice as many channels, and little
more arithmetic. Bytes become numbers from 0 to 1 on the way.

The plain twin is F.pad and unfold. With it instead of the kernel a step of `atari-nps` takes 1.25
times as long on an H200, and one of `blocks-nps` 1.11 times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

MULTIPLE = 8
"""Channel multiple that cuDNN requires."""


def has_few_channels(image: Shaped[Tensor, "B H W C"], weight: Float[Tensor, "out C K K"]) -> bool:
    """True if cuDNN would be slow with the image as it is, and its pixels can be taken in pairs."""
    return image.shape[-1] < MULTIPLE and image.shape[2] % 2 == 0 and weight.shape[-1] % 2 == 1


def unrolled_channels(channels: int, kernel: int) -> int:
    """Channels of the layout: the numbers that two pixels see, up to a multiple of eight."""
    return -(-(kernel + 1) * channels // MULTIPLE) * MULTIPLE


def unroll_weight(weight: Float[Tensor, "out C K K"]) -> Float[Tensor, "2*out wide K 1"]:
    """The weights of the same convolution for that layout, those of the left pixel first."""
    channels, kernel = weight.shape[1], weight.shape[-1]
    lines = weight.permute(0, 2, 3, 1)
    shifted = torch.stack([F.pad(lines, (0, 0, p, 1 - p)) for p in (0, 1)]).flatten(3)
    shifted = F.pad(shifted, (0, unrolled_channels(channels, kernel) - shifted.shape[-1]))
    return shifted.flatten(0, 1).movedim(-1, 1).unsqueeze(-1)


def unroll(
    image: Shaped[Tensor, "B H W C"], kernel: int, dtype: torch.dtype
) -> Float[Tensor, "B H W/2 wide"]:
    """The numbers that every pair of pixels sees of its line, zeros beyond the border."""
    result: Tensor = Unroll.apply(image, kernel, dtype)
    return result


def to_unit_range(image: Shaped[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Bytes as numbers from 0 to 1; other types as they are."""
    return image / 255.0 if image.dtype == torch.uint8 else image


def _by_torch(image: Tensor, kernel: int, dtype: torch.dtype) -> Tensor:
    channels, around = image.shape[-1], kernel // 2
    lines = F.pad(to_unit_range(image).to(dtype), (0, 0, around, around)).flatten(2)
    seen = lines.unfold(2, (kernel + 1) * channels, 2 * channels)
    return F.pad(seen, (0, unrolled_channels(channels, kernel) - seen.shape[-1]))


def supported(image: Shaped[Tensor, "*batch H W C"]) -> bool:
    return kernels.available("unroll", image)


class Unroll(torch.autograd.Function):
    """The layout with its gradient; the seeds of a stack are simply more images."""

    @staticmethod
    def forward(image: Tensor, kernel: int, dtype: torch.dtype) -> Tensor:
        flat = image.flatten(0, -4)
        if supported(image):
            from nps.kernels.triton import unroll as programs

            wide = unrolled_channels(image.shape[-1], kernel)
            result = programs.unroll(flat.contiguous(), kernel, wide, dtype)
        else:
            result = _by_torch(flat, kernel, dtype)
        unrolled: Tensor = result.unflatten(0, image.shape[:-3])
        return unrolled

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.shape, ctx.kernel, ctx.dtype = inputs[0].shape, inputs[1], inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Each pixel adds up the gradients of all pairs that saw it."""
        *images, height, width, channels = ctx.shape
        window, around = ctx.kernel + 1, ctx.kernel // 2
        seen = gradient[..., : window * channels].unflatten(-1, (window, channels))
        total = seen.new_zeros(*images, height, width + 2 * around, channels)
        for j in range(window):
            total[..., j : j + width : 2, :] += seen[..., j, :]
        return total[..., around : around + width, :].to(ctx.dtype), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        image, kernel, dtype = inputs
        return Unroll.apply(image.movedim(in_dims[0], 0), kernel, dtype), 0
