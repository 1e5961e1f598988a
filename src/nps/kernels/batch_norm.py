"""Batch normalisation of images laid out (B, H, W, C) and the activation after it:

    z = (x - mean) / sqrt(variance + ε) · weight + bias;   y = z where z > 0, slope · z elsewhere

with the statistics of each channel over its batch, or given ones. All of it is plain torch, in two
forms: F.batch_norm, and basic operations on CUDA, where vmap does not support F.batch_norm. It is
here because the plain twin of `readout` needs it, and kernels import no networks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from jaxtyping import Float


Statistics = tuple[Tensor, Tensor]
"""Mean and (biased) variance of each channel."""


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
    normalise = _in_basic_operations if x.is_cuda else _by_torch
    z, mean, variance = normalise(x, weight, bias, given, epsilon)
    return _activate(z, slope), mean, variance


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
