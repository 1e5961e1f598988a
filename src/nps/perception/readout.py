"""Batch normalisation, its activation, and a convolution whose windows do not overlap, as one.

    y = act(norm(x));   out[Y, X, o] = bias[o] + Σ y[K·Y + i, K·X + j, c] · weight[o, c, i, j]

It is the end of C-SWM's medium extractor, where x is large and `out` is small. Each number of x
belongs to one window, so y need never be stored: the kernels (readout_kernels.py) find it again
from x where they need it. Of the P bytes of x they take 2 P forward (read for the statistics; read)
and 3 P backward (read for the sums; read; write), where normalise.py and convolution.py after one
another take 4 P and 7 P. Elsewhere it is these two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps import kernels
from nps.perception.convolution import convolve
from nps.perception.cudnn import LARGE
from nps.perception.normalise import normalise
from nps.seeds import KernelGradient, stacked, with_one_dimension

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class Form:
    """What of it is no tensor."""

    kernel: int
    """Side of a window, and the way to the next."""
    slope: float
    epsilon: float


def suits(x: Float[Tensor, "B H H C"], weight: Float[Tensor, "out C K K"]) -> bool:
    """Is it worth while: in bf16, and so large that its bytes are what it costs?"""
    large = x.dtype == torch.bfloat16 and x.shape[:3].numel() >= LARGE
    return large and _has_kernels(x, weight)


def read_out(
    x: Float[Tensor, "B H H C"],
    scale: Float[Tensor, "C"],
    shift: Float[Tensor, "C"],
    weight: Float[Tensor, "out C K K"],
    bias: Float[Tensor, "out"],
    *,
    slope: float,
    epsilon: float = 1e-5,
) -> tuple[Float[Tensor, "B H/K H/K out"], Float[Tensor, "C"], Float[Tensor, "C"]]:
    """The result, and the mean and the (biased) variance of the batch.

    Args:
        x: the input.
        scale, shift: of each channel, after the normalisation.
        weight, bias: of the convolution, whose stride is the side of its window.
        slope: of the activation below zero: 1 is none, 0 is ReLU.
        epsilon: added to the variance.
    """
    kernel = weight.shape[-1]
    if _has_kernels(x, weight):
        taps = weight.permute(2, 3, 1, 0).flatten(0, 2)
        form = Form(kernel, slope, epsilon)
        out, mean, variance = ReadOut.apply(form, x, scale, shift, taps, bias)
        return out, mean, variance
    y, mean, variance = normalise(x, scale, shift, slope=slope, epsilon=epsilon)
    weight, bias = weight.to(y.dtype), bias.to(y.dtype)
    return convolve(y, weight[None, None], bias, stride=kernel), mean, variance


def _has_kernels(x: Tensor, weight: Tensor) -> bool:
    kernel, (height, width, channels) = weight.shape[-1], x.shape[-3:]
    fits = channels in (16, 32, 64) and len(weight) <= 32
    fits = fits and height % kernel == 0 and width % kernel == 0 and x.numel() < 2**31
    return fits and x.dtype in (torch.float32, torch.bfloat16) and kernels.possible(x)


class ReadOut(torch.autograd.Function):
    """(form, x, scale, shift, taps, bias) -> (out, mean, variance), by the kernels.

    Dimensions for seeds may stand in front of all of them: as many as the scale has beyond one.
    """

    @staticmethod
    def forward(form: Form, *values: Tensor) -> tuple[Tensor, ...]:
        from nps.perception import readout_kernels

        seeds = values[1].shape[:-1]
        found = readout_kernels.forward(*with_one_dimension(values, values[1]), form=form)
        return tuple(v.reshape(*seeds, *v.shape[1:]) for v in found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.form, *values = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*values, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return None, *Gradient.apply(ctx.form, gradient, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: Any, form: Form, *values: Tensor) -> tuple[Any, Any]:
        return ReadOut.apply(form, *stacked(info.batch_size, in_dims[1:], values)), (0, 0, 0)


class Gradient(KernelGradient):
    """(form, gradient of out, x, scale, shift, taps, bias, mean, variance) -> gradients of five."""

    @staticmethod
    def forward(form: Form, *values: Tensor) -> tuple[Tensor, ...]:
        from nps.perception import readout_kernels

        found = readout_kernels.backward(*with_one_dimension(values, values[2]), form=form)
        return tuple(
            v.reshape(of.shape).to(of.dtype) for v, of in zip(found, values[1:6], strict=True)
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, form: Form, *values: Tensor) -> tuple[Any, Any]:
        return Gradient.apply(form, *stacked(info.batch_size, in_dims[1:], values)), (0,) * 5
