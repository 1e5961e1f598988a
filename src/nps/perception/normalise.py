"""Batch normalisation of images laid out (B, H, W, C), and the activation that follows, as one.

    z = (x - mean) / sqrt(variance + ε) · weight + bias;   y = z where z > 0, slope · z elsewhere

with the statistics of each channel over its batch, or given ones. On a GPU it runs in kernels of
our own (normalise_kernels.py) that take a stack of seeds at once and are bound by memory. Their
gradient keeps x alone and finds z again, and the passes over the P bytes of x are what it takes:
3 P forward (read for the statistics; read; write y) and 5 P backward (read the gradient and x for
the sums; read both; write). Elsewhere it is torch's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.seeds import KernelGradient, stacked, with_one_dimension

if TYPE_CHECKING:
    from jaxtyping import Float


Statistics = tuple[Tensor, Tensor]
"""Mean and (biased) variance of each channel."""


@dataclass(frozen=True)
class Form:
    """What of it is no tensor."""

    slope: float
    epsilon: float
    of_batch: bool
    """Are the statistics those of x, so that x's gradient goes through them, too?"""


def normalise(
    x: Float[Tensor, "*rows C"],
    weight: Float[Tensor, "C"],
    bias: Float[Tensor, "C"],
    given: Statistics | None = None,
    *,
    slope: float = 1.0,
    epsilon: float = 1e-5,
) -> tuple[Float[Tensor, "*rows C"], Float[Tensor, "C"], Float[Tensor, "C"]]:
    """The result, and the mean and the (biased) variance it was normalised with.

    Args:
        x: the input.
        weight, bias: of each channel, after the normalisation.
        given: mean and variance, instead of the batch's; they get no gradient.
        slope: of the activation below zero: 1 is none, 0 is ReLU.
        epsilon: added to the variance.
    """
    if given is None and x.shape[:-1].numel() < 2:
        raise ValueError(f"x: got shape {tuple(x.shape)}, expected two or more numbers a channel")
    if _has_kernels(x):
        form = Form(slope, epsilon, of_batch=given is None)
        y, *found = Normalisation.apply(form, x, weight, bias, *(given or ()))
        mean, variance = given or found
        return y, mean, variance
    # On CUDA torch's own does not work under vmap.
    z, mean, variance = (_written_out if x.is_cuda else _plain)(x, weight, bias, given, epsilon)
    return _activated(z, slope), mean, variance


def _plain(
    x: Tensor, weight: Tensor, bias: Tensor, given: Statistics | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By torch, which has the channels second, in the dtype of the learned, as vmap needs it."""
    image = x.movedim(-1, 1).to(weight.dtype)
    if given is not None:
        z = F.batch_norm(image, *given, weight, bias, eps=epsilon)
        return z.movedim(1, -1).to(x.dtype), *given
    # It tells the batch's statistics to running ones alone; here these forget all before.
    row = image.detach().movedim(1, -1)[(0,) * (x.dim() - 1)]
    mean, variance = torch.zeros_like(row), torch.zeros_like(row)
    z = F.batch_norm(image, mean, variance, weight, bias, True, momentum=1.0, eps=epsilon)
    count = x.shape[:-1].numel()
    return z.movedim(1, -1).to(x.dtype), mean, variance * ((count - 1) / count)


def _written_out(
    x: Tensor, weight: Tensor, bias: Tensor, given: Statistics | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """In ordinary operations."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    rows = tuple(range(x.dim() - 1))
    mean = wide.mean(rows) if given is None else given[0].detach()
    centred = wide - mean
    variance = centred.square().mean(rows) if given is None else given[1].detach()
    z = centred * ((variance + epsilon).rsqrt() * weight) + bias
    return z.to(x.dtype), mean.detach(), variance.detach()


def _activated(z: Tensor, slope: float) -> Tensor:
    if slope in (0, 1):
        return z if slope else z.relu()
    return F.leaky_relu(z, slope)


def _has_kernels(x: Tensor) -> bool:
    return x.dtype in (torch.float32, torch.bfloat16) and kernels.possible(x)


class Normalisation(torch.autograd.Function):
    """(form, x, weight, bias, given statistics if any) -> (y, statistics unless given).

    By the kernels. Dimensions for seeds may stand in front of all of them: as many as the weight
    has beyond one.
    """

    @staticmethod
    def forward(form: Form, *values: Tensor) -> tuple[Tensor, ...]:
        from nps.perception import normalise_kernels

        x, weight = values[:2]
        y, *found = normalise_kernels.forward(*with_one_dimension(values, weight), form=form)
        return y.reshape(x.shape), *(v.reshape(weight.shape) for v in found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        form, *values = inputs
        ctx.form = form
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*values, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        found: tuple[Tensor, ...] = Gradient.apply(ctx.form, gradient, *ctx.saved_tensors)
        return None, *found, *[None] * (0 if ctx.form.of_batch else 2)

    @staticmethod
    def vmap(info: Any, in_dims: Any, form: Form, *values: Tensor) -> tuple[Any, Any]:
        outputs = Normalisation.apply(form, *stacked(info.batch_size, in_dims[1:], values))
        return outputs, (0,) * len(outputs)


class Gradient(KernelGradient):
    """(form, gradient of y, x, weight, bias, mean, variance) -> gradients of x, weight, bias."""

    @staticmethod
    def forward(form: Form, *values: Tensor) -> tuple[Tensor, ...]:
        from nps.perception import normalise_kernels

        x, weight = values[1:3]
        to_x, *others = normalise_kernels.backward(*with_one_dimension(values, weight), form=form)
        return to_x.reshape(x.shape), *(v.reshape(weight.shape) for v in others)

    @staticmethod
    def vmap(info: Any, in_dims: Any, form: Form, *values: Tensor) -> tuple[Any, Any]:
        return Gradient.apply(form, *stacked(info.batch_size, in_dims[1:], values)), (0, 0, 0)
