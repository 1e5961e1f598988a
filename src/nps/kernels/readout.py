"""Batch normalisation, activation and a convolution of disjoint windows, as one function:

    y = act(norm(x));   out[Y, X, o] = bias[o] + Σ y[K·Y + i, K·X + j, c] · weight[o, c, i, j]

It is the end of C-SWM's medium extractor, where x is large and `out` is small. Each number of x
belongs to one window, so the fast form never stores y and recomputes it from x. Of the P bytes of x
it moves 2 P forward (read for the statistics; read) and 3 P backward (read for the sums; read;
write), where its twin, `batch_norm` and then `convolve`, moves 4 P and 7 P.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps import kernels
from nps.kernels.batch_norm import batch_norm
from nps.kernels.conv2d_cudnn import LARGE
from nps.kernels.conv2d_stack import convolve
from nps.kernels.stacks import KernelGradient, one_seed_dim, seeds_first

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class Settings:
    """Non-tensor arguments of the kernels."""

    kernel: int
    """Side of a window, and the stride."""
    slope: float
    epsilon: float


def readout(
    x: Float[Tensor, "B H W C"],
    scale: Float[Tensor, "C"],
    shift: Float[Tensor, "C"],
    weight: Float[Tensor, "out C K K"],
    bias: Float[Tensor, "out"],
    *,
    slope: float,
    epsilon: float = 1e-5,
) -> tuple[Float[Tensor, "B H/K W/K out"], Float[Tensor, "C"], Float[Tensor, "C"]]:
    """The output, and the mean and (biased) variance of the batch.

    Args:
        x: the input.
        scale, shift: of each channel after the normalisation.
        weight, bias: of the convolution, whose stride is the side of its kernel.
        slope: of the activation below zero: 1 for none, 0 for ReLU.
        epsilon: added to the variance.
    """
    kernel = weight.shape[-1]
    if supported(x, weight):
        taps = weight.permute(2, 3, 1, 0).flatten(0, 2)
        settings = Settings(kernel, slope, epsilon)
        out, mean, variance = Readout.apply(settings, x, scale, shift, taps, bias)
        return out, mean, variance
    y, mean, variance = batch_norm(x, scale, shift, slope=slope, epsilon=epsilon)
    weight, bias = weight.to(y.dtype), bias.to(y.dtype)
    return convolve(y, weight[None, None], bias, stride=kernel), mean, variance


def supported(x: Float[Tensor, "B H W C"], weight: Float[Tensor, "out C K K"]) -> bool:
    """True in bf16 if x is so large that moving it is the cost, and windows tile it exactly."""
    kernel, (height, width, channels) = weight.shape[-1], x.shape[-3:]
    fits = channels in (16, 32, 64) and len(weight) <= 32
    fits = fits and height % kernel == 0 and width % kernel == 0
    large = x.dtype == torch.bfloat16 and x.shape[:3].numel() >= LARGE and x.numel() < 2**31
    return fits and large and kernels.available("readout", x)


class Readout(torch.autograd.Function):
    """(settings, x, scale, shift, taps, bias) -> (out, mean, variance), by the kernels.

    Seeds may be leading dimensions of every tensor: all of the scale's but its last.
    """

    @staticmethod
    def forward(settings: Settings, *values: Tensor) -> tuple[Tensor, ...]:
        from nps.kernels.triton import readout as programs

        seeds = values[1].shape[:-1]
        found = programs.forward(*one_seed_dim(values, values[1]), settings=settings)
        return tuple(v.reshape(*seeds, *v.shape[1:]) for v in found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.settings, *values = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*values, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return None, *Gradient.apply(ctx.settings, gradient, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: Any, settings: Settings, *values: Tensor) -> tuple[Any, Any]:
        return Readout.apply(settings, *seeds_first(info.batch_size, in_dims[1:], values)), (0,) * 3


class Gradient(KernelGradient):
    """(settings, gradient of out, x, scale, shift, taps, bias, mean, variance) -> five gradients:
    of x, scale, shift, taps and bias."""

    @staticmethod
    def forward(settings: Settings, *values: Tensor) -> tuple[Tensor, ...]:
        from nps.kernels.triton import readout as programs

        gradients = programs.backward(*one_seed_dim(values, values[2]), settings=settings)
        return tuple(
            g.reshape(of.shape).to(of.dtype) for g, of in zip(gradients, values[1:6], strict=True)
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, settings: Settings, *values: Tensor) -> tuple[Any, Any]:
        return Gradient.apply(settings, *seeds_first(info.batch_size, in_dims[1:], values)), (
            0,
        ) * 5
