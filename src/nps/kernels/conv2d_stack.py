"""Convolution of images laid out (B, H, W, C), with a replicated border, for a stack of seeds.

Under vmap, a convolution with different weights for every seed becomes a grouped one, and cuDNN
runs its groups one after the other: hundreds of launches on small tensors. The fast form (float32
or bf16 on a GPU) takes the seed as a dimension of the grid, for square images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.kernels.stacks import seeds_first

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class Geometry:
    """Sizes of one convolution, for which the kernels are compiled."""

    height: int
    """Side of the input."""
    channels: int
    """Channels of the input."""
    kernel: int
    stride: int
    before: int
    """How far the first window begins before the input, where it reads the replicated border."""
    windows: int
    """Windows along a side."""
    up: int
    """Each window yields up × up pixels."""
    size: int
    """Side of the output: up · windows, or less where the last pixels are cut off."""
    out: int
    """Channels of the output."""

    @property
    def padded(self) -> int:
        """Side of the input with its replicated border."""
        return (self.windows - 1) * self.stride + self.kernel


def convolve(
    image: Float[Tensor, "B H W C"],
    weight: Float[Tensor, "up up out C kernel kernel"],
    bias: Float[Tensor, "out"],
    *,
    stride: int = 1,
    before: int = 0,
    size: int | None = None,
) -> Float[Tensor, "B H2 W2 out"]:
    """A convolution in which every window yields up × up pixels, each with weights of its own.

    Args:
        image: the input.
        weight: of each pixel of a window; up = 1 is an ordinary convolution.
        bias: shared by the pixels of a window.
        stride: from window to window.
        before: how far outside the image the first window begins; the border is replicated there,
            and at the other end as far as `size` requires.
        size: side of the output; by default what windows inside the image yield.
    """
    up, kernel, sides = weight.shape[0], weight.shape[-1], image.shape[1:3]
    if size is None:
        rows, columns = (up * ((side + before - kernel) // stride + 1) for side in sides)
    else:
        rows = columns = size
    if torch.is_autocast_enabled(image.device.type):
        dtype = torch.get_autocast_dtype(image.device.type)
        image, weight, bias = image.to(dtype), weight.to(dtype), bias.to(dtype)
    windows = -(-rows // up), -(-columns // up)
    if supported(image, weight, stride):
        geometry = Geometry(
            sides[0], image.shape[-1], kernel, stride, before, windows[0], up, rows, weight.shape[2]
        )
        taps = weight.permute(4, 5, 3, 0, 1, 2).flatten(3).flatten(0, 2)
        result: Tensor = Convolution.apply(image, taps, bias, geometry)
        return result
    return _by_torch(image, weight, bias, stride, before, windows)[:, :rows, :columns]


def _by_torch(
    image: Tensor, weight: Tensor, bias: Tensor, stride: int, before: int, windows: tuple[int, int]
) -> Tensor:
    """F.conv2d with up · up · out channels, which are then rearranged into pixels."""
    up, out, kernel = weight.shape[1], weight.shape[2], weight.shape[-1]
    x = image.permute(0, 3, 1, 2)
    below, right = (
        max(0, (count - 1) * stride + kernel - before - side)
        for count, side in zip(windows, image.shape[1:3], strict=True)
    )
    if before or below or right:
        x = F.pad(x, (before, right, before, below), mode="replicate")
    channels = weight.permute(2, 0, 1, 3, 4, 5).flatten(0, 2)
    pixels: Tensor = F.conv2d(x, channels, bias.repeat_interleave(up * up), stride)
    pixels = pixels.unflatten(1, (out, up, up)).permute(0, 4, 2, 5, 3, 1)
    result = pixels.flatten(3, 4).flatten(1, 2)
    return result


def supported(
    image: Float[Tensor, "B H W C"], weight: Float[Tensor, "up up out C kernel kernel"], stride: int
) -> bool:
    channels, columns = image.shape[-1], weight.shape[:3].numel()
    if image.shape[1] != image.shape[2]:
        return False
    fits = (channels < 16 or channels in (16, 32, 64, 128)) and columns <= 256
    fits = fits and weight.shape[-1] % stride == 0
    fits = fits and image.dtype in (torch.float32, torch.bfloat16)
    return fits and kernels.available("conv2d_stack", image)


class Convolution(torch.autograd.Function):
    """(image, taps, bias, geometry) -> result, by the kernels: for one seed or a stack of them."""

    @staticmethod
    def forward(image: Tensor, taps: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
        from nps.kernels.triton import conv2d_stack as programs

        if taps.dim() == 3:
            tensors = (image.contiguous(), taps.contiguous(), bias.contiguous())
            return programs.forward(*tensors, geometry)
        image, taps, bias = (x.unsqueeze(0).contiguous() for x in (image, taps, bias))
        return programs.forward(image, taps, bias, geometry).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.geometry = inputs[3]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        from nps.kernels.triton import conv2d_stack as programs

        image, taps = ctx.saved_tensors
        single = taps.dim() == 2
        tensors = (x.unsqueeze(0) if single else x for x in (gradient, image, taps))
        gradient, image, taps = (x.contiguous() for x in tensors)
        to_image = None
        if ctx.needs_input_grad[0]:
            to_image = programs.to_image(gradient, taps, ctx.geometry)
        to_taps, to_bias = programs.to_weight(image, gradient, ctx.geometry)
        to_taps, to_bias = to_taps.to(taps.dtype), to_bias.to(taps.dtype)
        if single:
            to_image = None if to_image is None else to_image.squeeze(0)
            to_taps, to_bias = to_taps.squeeze(0), to_bias.squeeze(0)
        return to_image, to_taps, to_bias, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        *tensors, geometry = inputs
        return Convolution.apply(*seeds_first(info.batch_size, in_dims[:-1], tensors), geometry), 0
