"""The part of slot attention that sees every pixel: slots compete for features and pool them.

An image of 50 × 50 has 500 times as many features as slots, so the cost is memory: features should
be read rarely, and no other tensor should be as large. Keys and values are therefore never made.
A key is linear in its feature, so the query can go back through the keys' matrix and meet the
feature itself; a value is linear too, so features can be pooled first and the pool go through the
values' matrix. The fast form (float32 or bf16 on a GPU) reads the features once forward, and reads
and writes them once backward.

Products are in the type of the features, sums and softmax in float32 at least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.kernels.stacks import seeds_first

if TYPE_CHECKING:
    from jaxtyping import Float

EPSILON = 1e-8
"""Added to every weight, as published: a slot that wins nothing pools a little of everything."""
MAX_SIZE, MAX_SLOTS = 128, 64
"""Longest feature and most slots that a program holds in registers."""


class Affine(NamedTuple):
    """The parameters of a linear layer."""

    weight: Float[Tensor, "out F"]
    bias: Float[Tensor, "out"]


def attend(
    features: Float[Tensor, "B n F"], query: Float[Tensor, "B M D"], key: Affine, value: Affine
) -> Float[Tensor, "B M D"]:
    """The mean of the features' values for each slot, weighted by its share of each feature."""
    return F.linear(pool(features, *through_key(query, key)), value.weight, value.bias)


def attention_weights(
    features: Float[Tensor, "B n F"], query: Float[Tensor, "B M D"], key: Affine
) -> Float[Tensor, "B M n"]:
    """The share of each feature that every slot gets, which sums to 1 over slots."""
    return compete(features, *through_key(query, key)).transpose(-1, -2)


def through_key(
    query: Float[Tensor, "B M D"], key: Affine
) -> tuple[Float[Tensor, "B M F"], Float[Tensor, "B M"]]:
    """What a feature x meets instead of keys: query · (W x + b) = (query W) · x + query · b."""
    return query @ key.weight, query @ key.bias


def compete(
    features: Float[Tensor, "B n F"],
    queries: Float[Tensor, "B M F"],
    offsets: Float[Tensor, "B M"],
) -> Float[Tensor, "B n M"]:
    """The softmax over slots of the scores queries · feature + offset."""
    scores = at_least_float32(features @ queries.to(features.dtype).transpose(-1, -2))
    return (scores + offsets.unsqueeze(-2)).softmax(-1)


def pool(
    features: Float[Tensor, "B n F"],
    queries: Float[Tensor, "B M F"],
    offsets: Float[Tensor, "B M"],
) -> Float[Tensor, "B M F"]:
    """The mean of the features for each slot, weighted by its share of them."""
    if supported(features, queries):
        pooled: Tensor = Pool.apply(features, queries, offsets)[0]
        return pooled
    weights = compete(features, queries, offsets) + EPSILON
    sums = at_least_float32(weights.to(features.dtype).transpose(-1, -2) @ features)
    return sums / weights.sum(-2).unsqueeze(-1)


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def supported(features: Float[Tensor, "B n F"], queries: Float[Tensor, "B M F"]) -> bool:
    fits = features.shape[-1] <= MAX_SIZE and queries.shape[-2] <= MAX_SLOTS
    fits = fits and features.dtype in (torch.float32, torch.bfloat16)
    return fits and kernels.available("attention", features)


class Pool(torch.autograd.Function):
    """(features, queries, offsets) -> (means, sum of each slot's weights), by the kernels."""

    @staticmethod
    def forward(features: Tensor, queries: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        from nps.kernels.triton import attention as programs

        queries = queries.to(features.dtype).contiguous()
        return programs.forward(features.contiguous(), queries, offsets.contiguous(), EPSILON)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        from nps.kernels.triton import attention as programs

        features, queries, offsets, pooled, totals = (x.contiguous() for x in ctx.saved_tensors)
        queries = queries.to(features.dtype)
        return programs.backward(
            features, queries, offsets, pooled, totals, gradient.contiguous(), EPSILON
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        return Pool.apply(*seeds_first(info.batch_size, in_dims, inputs)), (0, 0)
