"""Batch normalisation by torch's own passes over the rows, which are fast on a CPU, seed by seed
(normalise.py says what it computes). Under vmap they would copy all rows, and fail on CUDA."""

from __future__ import annotations

from collections.abc import Iterable
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
    return _together(_forward(*one, form=form) for one in zip(x, weight, bias, *given, strict=True))


def backward(
    gradient: Float[Tensor, "S *rows C"],
    x: Float[Tensor, "S *rows C"],
    weight: Float[Tensor, "S C"],
    bias: Float[Tensor, "S C"],
    mean: Float[Tensor, "S C"],
    variance: Float[Tensor, "S C"],
    form: Form,
) -> tuple[Tensor, ...]:
    seeds = zip(gradient, x, weight, bias, mean, variance, strict=True)
    return _together(_backward(*one, form) for one in seeds)


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, *given: Tensor, form: Form
) -> tuple[Tensor, ...]:
    wide = widened(x).movedim(-1, 1)  # torch has the channels second
    mean, variance = given or torch.batch_norm_update_stats(wide, None, None, 0.0)
    y = torch.native_batch_norm(wide, weight, bias, mean, variance, False, 0.0, form.epsilon)[0]
    if form.slope != 1:
        y = F.leaky_relu_(y, form.slope)
    y = y.movedim(1, -1).to(x.dtype)
    return (y,) if given else (y, mean, variance)


def _backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    form: Form,
) -> tuple[Tensor, ...]:
    wide, before = widened(x).movedim(-1, 1), widened(gradient).movedim(-1, 1)
    inverse = (variance + form.epsilon).rsqrt()
    given = weight, mean, variance, mean, inverse
    if form.slope != 1:
        z = torch.native_batch_norm(wide, weight, bias, mean, variance, False, 0.0, form.epsilon)[0]
        before = torch.ops.aten.leaky_relu_backward(before, z, form.slope, False)
    to_x, to_weight, to_bias = torch.ops.aten.native_batch_norm_backward(
        before, wide, *given, form.of_batch, form.epsilon, (True, True, True)
    )
    return to_x.movedim(1, -1).to(x.dtype), to_weight, to_bias


def widened(x: Tensor) -> Tensor:
    """Sums are taken in float32 at least."""
    return x if x.dtype == torch.float64 else x.float()


def _together(seeds: Iterable[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """A first dimension for the seeds; a single one is not copied."""
    return tuple(
        values[0].unsqueeze(0) if len(values) == 1 else torch.stack(values)
        for values in zip(*seeds, strict=True)
    )
