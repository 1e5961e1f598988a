"""The part of slot attention that sees every pixel: normalise, compete, pool.

An image of 50 × 50 has 500 times as many features as slots, so this part is all memory: features
should be read seldom, and nothing else be as large. Keys and values are therefore not made. A key
is linear in its feature, so a query can be taken back through the keys' matrix and meet the feature
itself; a value is linear too, so features can be pooled first and their pool go through the values'
matrix. On a GPU with Triton it runs in kernels of its own (attend_kernels.py).

Products are in the features' own type, with sums and softmax in float32 at least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.seeds import stacked

if TYPE_CHECKING:
    from jaxtyping import Float

EPSILON = 1e-8
"""Added to every weight (as published): a slot that wins nothing pools everything a little."""
NORM_EPSILON = 1e-5
"""torch's own, of a layer normalisation."""


def exact(x: Tensor) -> Tensor:
    """Float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def normalise(
    x: Float[Tensor, "B n F"], added: Float[Tensor, "n F"] | None = None
) -> Float[Tensor, "B n F"]:
    """Layer normalisation without parameters, of the features and what is added to each place."""
    if _has_kernels(x):
        result: Tensor = Normalise.apply(x, added)[0]
        return result
    with torch.autocast(x.device.type, enabled=False):  # it would double the memory
        x = x if added is None else x + added.to(x.dtype)
        return F.layer_norm(x, x.shape[-1:], eps=NORM_EPSILON)


def compete(
    features: Float[Tensor, "B n F"],
    queries: Float[Tensor, "B M F"],
    offsets: Float[Tensor, "B M"],
) -> Float[Tensor, "B n M"]:
    """How much of each feature every slot gets: the slots share it, a softmax over slots."""
    scores = exact(features @ queries.to(features.dtype).transpose(-1, -2))
    return (scores + offsets.unsqueeze(-2)).softmax(-1)


def attend(
    features: Float[Tensor, "B n F"],
    queries: Float[Tensor, "B M F"],
    offsets: Float[Tensor, "B M"],
) -> Float[Tensor, "B M F"]:
    """Each slot's mean of the features, weighted by what it won of them."""
    if _has_kernels(features) and queries.shape[-2] <= 64:
        result: Tensor = Attend.apply(features, queries, offsets)[0]
        return result
    weights = compete(features, queries, offsets) + EPSILON
    sums = exact(weights.to(features.dtype).transpose(-1, -2) @ features)
    return sums / weights.sum(-2).unsqueeze(-1)


def _has_kernels(x: Tensor) -> bool:
    fits = x.shape[-1] <= 128 and x.dtype in (torch.float32, torch.bfloat16)
    return fits and kernels.possible(x)


class Normalise(torch.autograd.Function):
    """The kernels with their gradients; the second result is the factor of each row."""

    @staticmethod
    def forward(x: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
        from nps.perception.attend_kernels import normalise

        added = None if added is None else added.contiguous()
        return normalise(x.contiguous(), added, NORM_EPSILON)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        added = inputs[1]
        ctx.added = None if added is None else (added.dim(), added.dtype)
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor | None]:
        from nps.perception.attend_kernels import normalise_back

        to_x = normalise_back(gradient.contiguous(), *ctx.saved_tensors)
        if ctx.added is None:
            return to_x, None
        dims, dtype = ctx.added  # summed over all images, or over each seed's
        return to_x, to_x.flatten(dims - 2, -3).sum(dims - 2, dtype=torch.float32).to(dtype)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        return Normalise.apply(*stacked(info.batch_size, in_dims, inputs)), (0, 0)


class Attend(torch.autograd.Function):
    """The kernels with their gradients; the second result is the sum of each slot's weights."""

    @staticmethod
    def forward(features: Tensor, queries: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        from nps.perception.attend_kernels import attend

        queries = queries.to(features.dtype).contiguous()
        return attend(features.contiguous(), queries, offsets.contiguous(), EPSILON)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        from nps.perception.attend_kernels import attend_back

        features, queries, offsets, pooled, totals = (x.contiguous() for x in ctx.saved_tensors)
        near = queries.to(features.dtype)
        return attend_back(features, near, offsets, pooled, totals, gradient.contiguous(), EPSILON)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        return Attend.apply(*stacked(info.batch_size, in_dims, inputs)), (0, 0)
