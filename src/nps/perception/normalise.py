"""Batch normalisation of images laid out (B, H, W, C), and the activation that follows, as one.

    z = (x - mean) / sqrt(variance + ε) · weight + bias;   y = z where z > 0, slope · z elsewhere

with the statistics of each channel over its batch, or given ones. A stack of seeds, under `vmap`,
is one call. The gradient keeps x alone and finds z again. Nothing less will do than these passes
over the P bytes of x: forward 3 P (read for the statistics; read; write y), backward 5 P (read the
gradient and x for the sums; read both; write). On a GPU that is what it costs: the kernels
(normalise_kernels.py) are bound by memory. Elsewhere normalise_torch.py has the same formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.perception import normalise_torch

if TYPE_CHECKING:
    from jaxtyping import Float


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
    given: tuple[Float[Tensor, "C"], Float[Tensor, "C"]] | None = None,
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
    count = x.shape[:-1].numel()
    if given is None and count < 2:
        raise ValueError(f"x: got shape {tuple(x.shape)}, expected two or more numbers a channel")
    form = Form(slope, epsilon, of_batch=given is None)
    if torch.compiler.is_compiling():
        return _written_out(x, weight, bias, given, form)
    y, *found = Normalisation.apply(form, x, weight, bias, *(given or ()))
    mean, variance = given or found
    return y, mean, variance


def _written_out(
    x: Tensor, weight: Tensor, bias: Tensor, given: tuple[Tensor, Tensor] | None, form: Form
) -> tuple[Tensor, Tensor, Tensor]:
    """In ordinary operations, which a compiler fuses."""
    wide = normalise_torch.widened(x)
    rows = tuple(range(x.dim() - 1))
    mean = wide.mean(rows) if given is None else given[0]
    centred = wide - mean
    variance = centred.square().mean(rows) if given is None else given[1]
    z = centred * (variance + form.epsilon).rsqrt() * weight + bias
    return F.leaky_relu(z, form.slope).to(x.dtype), mean.detach(), variance.detach()


class Normalisation(torch.autograd.Function):
    """(form, x, weight, bias, given statistics if any) -> (y, statistics unless given).

    With dimensions for seeds in front of all of them, as many as the weight has beyond one.
    """

    @staticmethod
    def forward(form: Form, *values: Tensor) -> tuple[Tensor, ...]:
        x, weight = values[:2]
        x1, weight1, bias1, *given = _open(values, weight)
        y, *found = _passes(x).forward(x1, weight1, bias1, tuple(given), form)
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
        outputs = Normalisation.apply(form, *_stacked(info, in_dims[1:], values))
        return outputs, (0,) * len(outputs)


class Gradient(torch.autograd.Function):
    """(form, gradient of y, x, weight, bias, mean, variance) -> gradients of x, weight, bias."""

    @staticmethod
    def forward(form: Form, *values: Tensor) -> tuple[Tensor, ...]:
        x, weight = values[1:3]
        to_x, *others = _passes(x).backward(*_open(values, weight), form)
        return to_x.reshape(x.shape), *(v.reshape(weight.shape) for v in others)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError("normalise: there are no second derivatives")

    @staticmethod
    def vmap(info: Any, in_dims: Any, form: Form, *values: Tensor) -> tuple[Any, Any]:
        return Gradient.apply(form, *_stacked(info, in_dims[1:], values)), (0, 0, 0)


def _passes(x: Tensor) -> ModuleType:
    """Who goes over the rows."""
    if not _has_kernels(x):
        return normalise_torch
    from nps.perception import normalise_kernels

    return normalise_kernels


def _has_kernels(x: Tensor) -> bool:
    return x.dtype in (torch.float32, torch.bfloat16) and kernels.possible(x)


def _open(values: tuple[Tensor, ...], weight: Tensor) -> list[Tensor]:
    """With one dimension for the seeds."""
    stacked = weight.dim() - 1
    return [v.reshape(-1, *v.shape[stacked:]) for v in values]


def _stacked(info: Any, dims: tuple[int | None, ...], values: tuple[Tensor, ...]) -> list[Tensor]:
    """What is mapped over becomes the first dimension; what is shared, too."""
    return [
        v.expand(info.batch_size, *v.shape) if dim is None else v.movedim(dim, 0)
        for v, dim in zip(values, dims, strict=True)
    ]
