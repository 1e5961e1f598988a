"""Batch normalisation of images laid out (B, H, W, C) and the activation after it:

    z = (x - mean) / sqrt(variance + ε) · weight + bias;   y = z where z > 0, slope · z elsewhere

with the statistics of each channel over its batch, or given ones. The plain twin has two forms:
F.batch_norm, and basic operations on CUDA, where vmap does not support F.batch_norm. The fast form
(training in bf16 on a GPU) moves x eight times, forward and backward; torch's, with a ReLU of its
own, thirteen times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.kernels.stacks import KernelGradient, one_seed_dim, seeds_first

if TYPE_CHECKING:
    from jaxtyping import Float


Statistics = tuple[Tensor, Tensor]
"""Mean and (biased) variance of each channel."""
MAX_CHANNELS = 2048


class Settings(NamedTuple):
    slope: float
    epsilon: float


def batch_norm(
    x: Float[Tensor, "*rows C"],
    weight: Float[Tensor, "C"],
    bias: Float[Tensor, "C"],
    given: Statistics | None = None,
    *,
    slope: float = 1.0,
    epsilon: float = 1e-5,
) -> tuple[Float[Tensor, "*rows C"], Float[Tensor, "C"], Float[Tensor, "C"]]:
    """The activations, and the mean and (biased) variance that x was normalised with.

    Args:
        x: the input.
        weight, bias: scale and shift of each channel after the normalisation.
        given: mean and variance to use instead of the batch's; they get no gradient.
        slope: of the activation below zero: 1 for none, 0 for ReLU.
        epsilon: added to the variance.
    """
    if given is None and x.shape[:-1].numel() < 2:
        raise ValueError(f"x: got shape {tuple(x.shape)}, expected two or more numbers per channel")
    if given is None and supported(x):
        y, mean, variance = BatchNorm.apply(Settings(slope, epsilon), x, weight, bias)
        return y, mean, variance
    normalise = _in_basic_operations if x.is_cuda else _by_torch
    z, mean, variance = normalise(x, weight, bias, given, epsilon)
    return _activate(z, slope), mean, variance


def supported(x: Float[Tensor, "*rows C"]) -> bool:
    """For statistics of the batch."""
    fits = x.dtype == torch.bfloat16 and x.shape[-1] <= MAX_CHANNELS
    return fits and kernels.available("batch_norm", x)


def _by_torch(
    x: Tensor, weight: Tensor, bias: Tensor, given: Statistics | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """F.batch_norm, with channels second and in the type of the weight, as vmap requires."""
    image = x.movedim(-1, 1).to(weight.dtype)
    if given is not None:
        z = F.batch_norm(image, *given, weight, bias, eps=epsilon)
        return z.movedim(1, -1).to(x.dtype), *given
    # The only way to get the batch's statistics out: running ones that forget everything before.
    row = image.detach().movedim(1, -1)[(0,) * (x.dim() - 1)]
    mean, variance = torch.zeros_like(row), torch.zeros_like(row)
    z = F.batch_norm(image, mean, variance, weight, bias, True, momentum=1.0, eps=epsilon)
    count = x.shape[:-1].numel()
    return z.movedim(1, -1).to(x.dtype), mean, variance * ((count - 1) / count)


def _in_basic_operations(
    x: Tensor, weight: Tensor, bias: Tensor, given: Statistics | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    rows = tuple(range(x.dim() - 1))
    mean = wide.mean(rows) if given is None else given[0].detach()
    centred = wide - mean
    variance = centred.square().mean(rows) if given is None else given[1].detach()
    z = centred * ((variance + epsilon).rsqrt() * weight) + bias
    return z.to(x.dtype), mean.detach(), variance.detach()


def _activate(z: Tensor, slope: float) -> Tensor:
    if slope in (0, 1):
        return z if slope else z.relu()
    return F.leaky_relu(z, slope)


class BatchNorm(torch.autograd.Function):
    """(settings, x, weight, bias) -> (activations, mean, variance), by the kernels.

    Seeds may be leading dimensions of every tensor: all of the weight's but its last.
    """

    @staticmethod
    def forward(settings: Settings, *values: Tensor) -> tuple[Tensor, ...]:
        from nps.kernels.triton import batch_norm as programs

        x, weight = values[:2]
        y, *found = programs.forward(*one_seed_dim(values, weight), **settings._asdict())
        return y.reshape(x.shape), *(v.reshape(weight.shape) for v in found)

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
        stacked = seeds_first(info.batch_size, in_dims[1:], values)
        return BatchNorm.apply(settings, *stacked), (0,) * 3


class Gradient(KernelGradient):
    """(settings, gradient of the activations, x, weight, bias, mean, variance) -> gradients of x,
    weight and bias."""

    @staticmethod
    def forward(settings: Settings, *values: Tensor) -> tuple[Tensor, ...]:
        from nps.kernels.triton import batch_norm as programs

        gradients = programs.backward(*one_seed_dim(values, values[2]), **settings._asdict())
        return tuple(
            g.reshape(of.shape).to(of.dtype) for g, of in zip(gradients, values[1:4], strict=True)
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, settings: Settings, *values: Tensor) -> tuple[Any, Any]:
        stacked = seeds_first(info.batch_size, in_dims[1:], values)
        return Gradient.apply(settings, *stacked), (0,) * 3
