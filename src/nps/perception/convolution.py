"""Convolution of images laid out (B, H, W, C), with a replicated border.

On a GPU it runs in kernels of our own (convolution_kernels.py) that take a stack of seeds at once;
elsewhere, and for sizes these do not take, it is torch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.seeds import stacked

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

    from nps.perception.convolution_kernels import Geometry


def numbers(image: Shaped[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Bytes stand for numbers from 0 to 1."""
    return image / 255.0 if image.dtype == torch.uint8 else image


def convolve(
    image: Float[Tensor, "B H H C"],
    weight: Float[Tensor, "up up out C kernel kernel"],
    bias: Float[Tensor, "out"],
    *,
    stride: int = 1,
    before: int = 0,
    size: int | None = None,
) -> Float[Tensor, "B size size out"]:
    """Every window gives up × up pixels, each with weights of its own.

    Args:
        image: the input.
        weight: of each of a window's pixels; up = 1 is an ordinary convolution.
        bias: shared by a window's pixels.
        stride: from window to window.
        before: the first window begins so far outside the image, where the border is replicated;
            at the other end as far as `size` asks for.
        size: side of the output; by default what windows inside the image give.
    """
    up, kernel, height = weight.shape[0], weight.shape[-1], image.shape[1]
    if size is None:
        size = up * ((height + before - kernel) // stride + 1)
    if torch.is_autocast_enabled(image.device.type):
        kind = torch.get_autocast_dtype(image.device.type)
        image, weight, bias = image.to(kind), weight.to(kind), bias.to(kind)
    windows = -(-size // up)
    if _has_kernels(image, weight, stride):
        from nps.perception.convolution_kernels import Geometry

        sizes = Geometry(
            height, image.shape[-1], kernel, stride, before, windows, up, size, weight.shape[2]
        )
        taps = weight.permute(4, 5, 3, 0, 1, 2).flatten(3).flatten(0, 2)
        result: Tensor = Convolution.apply(image, taps, bias, sizes)
        return result
    return _plain(image, weight, bias, stride, before, windows)[:, :size, :size]


def _plain(
    image: Tensor, weight: Tensor, bias: Tensor, stride: int, before: int, windows: int
) -> Tensor:
    """By torch, whose convolutions have the channels first."""
    up, out, kernel = weight.shape[1], weight.shape[2], weight.shape[-1]
    x = image.permute(0, 3, 1, 2)
    after = (windows - 1) * stride + kernel - before - image.shape[1]
    if before or after > 0:
        x = F.pad(x, (before, max(after, 0)) * 2, mode="replicate")
    # pixel_shuffle wants (out, row of the window, column of the window).
    ordered = weight.permute(2, 0, 1, 3, 4, 5).flatten(0, 2)
    pixels: Tensor = F.conv2d(x, ordered, bias.repeat_interleave(up * up), stride)
    pixels = pixels.unflatten(1, (out, up, up)).permute(0, 4, 2, 5, 3, 1)
    image = pixels.flatten(3, 4).flatten(1, 2)
    return image


def _has_kernels(image: Tensor, weight: Tensor, stride: int) -> bool:
    channels, columns = image.shape[-1], weight.shape[:3].numel()
    fits = (channels < 16 or channels in (16, 32, 64, 128)) and columns <= 256
    fits = fits and weight.shape[-1] % stride == 0
    exact = image.dtype in (torch.float32, torch.bfloat16)
    return fits and exact and kernels.possible(image)


class Convolution(torch.autograd.Function):
    """The kernels with their gradients, for one seed or, under vmap, a stack of them."""

    @staticmethod
    def forward(image: Tensor, taps: Tensor, bias: Tensor, sizes: Geometry) -> Tensor:
        from nps.perception.convolution_kernels import forward

        if taps.dim() == 3:
            return forward(image.contiguous(), taps.contiguous(), bias.contiguous(), sizes)
        image, taps, bias = (x.unsqueeze(0).contiguous() for x in (image, taps, bias))
        return forward(image, taps, bias, sizes).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.sizes = inputs[3]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        from nps.perception.convolution_kernels import to_image, to_weight

        image, taps = ctx.saved_tensors
        single = taps.dim() == 2
        tensors = (x.unsqueeze(0) if single else x for x in (gradient, image, taps))
        gradient, image, taps = (x.contiguous() for x in tensors)
        for_image = to_image(gradient, taps, ctx.sizes) if ctx.needs_input_grad[0] else None
        for_taps, for_bias = to_weight(image, gradient, ctx.sizes)
        for_taps, for_bias = for_taps.to(taps.dtype), for_bias.to(taps.dtype)
        if single:
            for_image = None if for_image is None else for_image.squeeze(0)
            for_taps, for_bias = for_taps.squeeze(0), for_bias.squeeze(0)
        return for_image, for_taps, for_bias, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        *tensors, sizes = inputs
        return Convolution.apply(*stacked(info.batch_size, in_dims[:-1], tensors), sizes), 0
