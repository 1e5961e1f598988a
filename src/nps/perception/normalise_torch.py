"""Batch normalisation by torch's own passes, which are fast on a CPU (normalise.py says what it
computes). A stack of images is one with S · C channels, which is how torch's convolution under
vmap leaves it, too."""

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
    image = _image(x)
    mean, variance = (v.flatten() for v in given) if given else _moments(image)
    y = _affine(image, weight, bias, mean, variance, form)
    if form.slope != 1:
        y = F.leaky_relu_(y, form.slope)
    y = _rows(y, x)
    return (y,) if given else (y, mean.view_as(weight), variance.view_as(weight))


def backward(
    gradient: Float[Tensor, "S *rows C"],
    x: Float[Tensor, "S *rows C"],
    weight: Float[Tensor, "S C"],
    bias: Float[Tensor, "S C"],
    mean: Float[Tensor, "S C"],
    variance: Float[Tensor, "S C"],
    form: Form,
) -> tuple[Tensor, ...]:
    image, before = _image(x), _image(gradient)
    mean, variance = mean.flatten(), variance.flatten()
    if form.slope != 1:
        z = _affine(image, weight, bias, mean, variance, form)
        before = torch.ops.aten.leaky_relu_backward(before, z, form.slope, False)
    inverse = (variance + form.epsilon).rsqrt()
    statistics = mean, variance, mean, inverse
    to_x, to_weight, to_bias = torch.ops.aten.native_batch_norm_backward(
        before, image, weight.flatten(), *statistics, form.of_batch, form.epsilon, (True,) * 3
    )
    return _rows(to_x, x), to_weight.view_as(weight), to_bias.view_as(bias)


def widened(x: Tensor) -> Tensor:
    """Sums are taken in float32 at least."""
    return x if x.dtype == torch.float64 else x.float()


def _moments(image: Float[Tensor, "B S*C *size"]) -> tuple[Tensor, Tensor]:
    mean, variance = torch.batch_norm_update_stats(image, None, None, 0.0)
    return mean, variance


def _affine(
    image: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, form: Form
) -> Tensor:
    scale = weight.flatten(), bias.flatten(), mean, variance
    return torch.native_batch_norm(image, *scale, False, 0.0, form.epsilon)[0]


def _image(x: Float[Tensor, "S B *size C"]) -> Float[Tensor, "B S*C *size"]:
    return widened(x).movedim((0, -1), (1, 2)).flatten(1, 2)


def _rows(
    image: Float[Tensor, "B S*C *size"], like: Float[Tensor, "S B *size C"]
) -> Float[Tensor, "S B *size C"]:
    stacked: Tensor = image.unflatten(1, (len(like), -1))
    return stacked.movedim((1, 2), (0, -1)).to(like.dtype)
