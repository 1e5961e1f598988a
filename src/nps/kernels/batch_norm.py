"""Batch normalisation of images laid out (B, H, W, C) and the activation after it, as one function:

    z = (x - mean) / sqrt(variance + ε) · weight + bias;   y = z where z > 0, slope · z elsewhere

with the statistics of each channel over its batch, or given ones. The fast form (float32 or bf16 on
a GPU) takes a stack of seeds at once and is bound by memory: its gradient keeps only x and
recomputes z, so that of the P bytes of x it moves 3 P forward (read for the statistics; read; write
y) and 5 P backward (read gradient and x for the sums; read both; write).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.kernels.stacks import KernelGradient, one_seed_dim, seeds_first

if TYPE_CHECKING:
    from jaxtyping import Float


Statistics = tuple[Tensor, Tensor]
"""Mean and (biased) variance of each channel."""


@dataclass(frozen=True)
class Settings:
    """Non-tensor arguments of the kernels."""

    slope: float
    epsilon: float
    of_batch: bool
    """True if the statistics are those of x, so that the gradient of x goes through them, too."""


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
        raise ValueError(f"x: got shape {tuple(x.shape)}, expected two or more numbers a channel")
    if supported(x):
        settings = Settings(slope, epsilon, of_batch=given is None)
        y, *found = BatchNorm.apply(settings, x, weight, bias, *(given or ()))
        mean, variance = given or found
        return y, mean, variance
    # torch's own batch_norm does not work under vmap on CUDA.
    plain = _in_basic_operations if x.is_cuda else _by_torch
    z, mean, variance = plain(x, weight, bias, given, epsilon)
    return _activate(z, slope), mean, variance


def supported(x: Float[Tensor, "*rows C"]) -> bool:
    fits = x.dtype in (torch.float32, torch.bfloat16)
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
    """(settings, x, weight, bias, statistics if given) -> (y, statistics unless given).

    By the kernels. Seeds may be leading dimensions of every tensor: all of the weight's but its
    last.
    """

    @staticmethod
    def forward(settings: Settings, *values: Tensor) -> tuple[Tensor, ...]:
        from nps.kernels.triton import batch_norm as programs

        x, weight = values[:2]
        y, *found = programs.forward(*one_seed_dim(values, weight), settings=settings)
        return y.reshape(x.shape), *(v.reshape(weight.shape) for v in found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.settings, *values = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*values, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        gradients: tuple[Tensor, ...] = Gradient.apply(ctx.settings, gradient, *ctx.saved_tensors)
        return None, *gradients, *[None] * (0 if ctx.settings.of_batch else 2)

    @staticmethod
    def vmap(info: Any, in_dims: Any, settings: Settings, *values: Tensor) -> tuple[Any, Any]:
        outputs = BatchNorm.apply(settings, *seeds_first(info.batch_size, in_dims[1:], values))
        return outputs, (0,) * len(outputs)


class Gradient(KernelGradient):
    """(settings, gradient of y, x, weight, bias, mean, variance) -> of x, weight and bias."""

    @staticmethod
    def forward(settings: Settings, *values: Tensor) -> tuple[Tensor, ...]:
        from nps.kernels.triton import batch_norm as programs

        x, weight = values[1:3]
        to_x, *others = programs.backward(*one_seed_dim(values, weight), settings=settings)
        return to_x.reshape(x.shape), *(v.reshape(weight.shape) for v in others)

    @staticmethod
    def vmap(info: Any, in_dims: Any, settings: Settings, *values: Tensor) -> tuple[Any, Any]:
        return Gradient.apply(settings, *seeds_first(info.batch_size, in_dims[1:], values)), (
            0,
        ) * 3
