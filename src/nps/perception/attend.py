"""The part of slot attention that sees every pixel: normalise, compete, pool.

An image of 50 × 50 has 500 times as many features as slots, so this part is all memory: what
crosses it should be read once and written never. Keys and values are therefore not made. A key is
linear in its feature, so a query can be taken back through the keys' matrix and meet the feature
itself; a value is linear too, so features can be pooled first and their pool go through the values'
matrix.

Products are in the features' own type, with sums and softmax in float32 at least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from jaxtyping import Float

EPSILON = 1e-8
"""Added to every weight (as published): a slot that wins nothing pools everything a little."""


def exact(x: Tensor) -> Tensor:
    """Float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def normalise(x: Float[Tensor, "*batch F"]) -> Float[Tensor, "*batch F"]:
    """Layer normalisation without parameters; autocast would double its memory."""
    with torch.autocast(x.device.type, enabled=False):
        return F.layer_norm(x, x.shape[-1:])


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
    weights = compete(features, queries, offsets) + EPSILON
    sums = exact(weights.to(features.dtype).transpose(-1, -2) @ features)
    return sums / weights.sum(-2).unsqueeze(-1)
