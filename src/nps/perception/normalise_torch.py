"""Batch normalisation of S seeds at once in torch's own operations, in few passes over the rows
(normalise.py says what it computes). The rows may lie in memory in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from jaxtyping import Float

    from nps.perception.normalise import Form


def forward(
    x: Float[Tensor, "S *rows C"],
    weight: Float[Tensor, "S C"],
    bias: Float[Tensor, "S C"],
    given: tuple[Tensor, ...],
    form: Form,
) -> tuple[Tensor, ...]:
    wide, rows = widened(x), _rows(x)
    mean = given[0] if given else wide.mean(rows)
    centred = wide - _spread(mean, wide)
    variance = given[1] if given else centred.square().mean(rows)
    scale = weight * (variance + form.epsilon).rsqrt()
    y = torch.addcmul(_spread(bias, wide), centred, _spread(scale, wide), out=centred)
    if form.slope != 1:
        y = F.leaky_relu_(y, form.slope)
    y = y.to(x.dtype)
    return (y,) if given else (y, mean, variance)


def backward(
    gradient: Float[Tensor, "S *rows C"],
    x: Float[Tensor, "S *rows C"],
    weight: Float[Tensor, "S C"],
    bias: Float[Tensor, "S C"],
    mean: Float[Tensor, "S C"],
    variance: Float[Tensor, "S C"],
    form: Form,
) -> tuple[Tensor, Tensor, Tensor]:
    wide, rows = widened(x), _rows(x)
    inverse = (variance + form.epsilon).rsqrt()
    scale = weight * inverse
    centred = wide - _spread(mean, wide)
    before = widened(gradient)
    if form.slope != 1:
        z = torch.addcmul(_spread(bias, wide), centred, _spread(scale, wide))
        before = torch.ops.aten.leaky_relu_backward(before, z, form.slope, False)
    to_bias = before.sum(rows)
    to_weight = (before * centred).sum(rows) * inverse
    if form.of_batch:  # the mean takes its share back, and so does the variance
        count = x.shape[1:-1].numel()
        of_mean, of_variance = to_bias * scale / -count, to_weight * scale * inverse / -count
        of_mean, of_variance = _spread(of_mean, wide), _spread(of_variance, wide)
        to_x = torch.addcmul(of_mean, centred, of_variance, out=centred)
        to_x.addcmul_(before, _spread(scale, wide))
    else:
        to_x = before * _spread(scale, wide)
    return to_x.to(x.dtype), to_weight.to(weight.dtype), to_bias.to(bias.dtype)


def widened(x: Tensor) -> Tensor:
    """Sums are taken in float32 at least."""
    return x if x.dtype == torch.float64 else x.float()


def _rows(x: Tensor) -> tuple[int, ...]:
    """The dimensions that a channel's statistics are taken over."""
    return tuple(range(1, x.dim() - 1))


def _spread(values: Float[Tensor, "S C"], x: Tensor) -> Tensor:
    return values.view(len(values), *[1] * (x.dim() - 2), -1)
