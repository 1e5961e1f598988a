"""Slot attention's pass over the features (nps/kernels/attention.py), in Triton.

Slots are few, and torch's products would pad them to tiles of many. Here a program holds whole
features and all slots in registers: a pass reads the features once, and scores, softmax and weights
never reach the memory. Leading dimensions are all alike: seeds are more images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from nps.kernels.triton.common import dot_precision, precision, tensor_core_size

if TYPE_CHECKING:
    from jaxtyping import Float

ROWS = 64
"""Features that a program takes at a time."""
WARPS = 4


@triton.jit
def _shares(x, query, offset, slot, PRECISION: tl.constexpr):
    """The softmax over slots of some features."""
    scores = tl.dot(x, tl.trans(query), input_precision=PRECISION) + offset[None, :]
    scores = tl.where(slot[None, :], scores, float("-inf"))
    scores = tl.exp(scores - tl.max(scores, 1)[:, None])
    return scores / tl.sum(scores, 1)[:, None]


@triton.jit
def _forward(
    features, queries, offsets, pooled, totals, n, epsilon,
    F: tl.constexpr, FP: tl.constexpr, M: tl.constexpr, MP: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One image."""
    image = tl.program_id(0)
    f, m = tl.arange(0, FP), tl.arange(0, MP)
    of_slot = (m < M)[:, None] & (f < F)[None, :]
    at = (image * M + m)[:, None] * F + f[None, :]
    query = tl.load(queries + at, mask=of_slot, other=0.0)
    offset = tl.load(offsets + image * M + m, mask=m < M, other=0.0)
    features += image.to(tl.int64) * n * F
    sums, total = tl.zeros((MP, FP), tl.float32), tl.zeros((MP,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row < n)[:, None] & (f < F)[None, :]
        x = tl.load(features + row[:, None] * F + f[None, :], mask=mask, other=0.0)
        weight = _shares(x, query, offset, m < M, PRECISION) + epsilon
        weight = tl.where((row < n)[:, None] & (m < M)[None, :], weight, 0.0)
        sums += tl.dot(tl.trans(weight.to(x.dtype)), x, input_precision=PRECISION)
        total += tl.sum(weight, 0)
    tl.store(pooled + at, sums / total[:, None], mask=of_slot)
    tl.store(totals + image * M + m, total, mask=m < M)


@triton.jit
def _backward(
    features, queries, offsets, pooled, totals, gradient, to_features, to_queries, to_offsets,
    n, epsilon,
    F: tl.constexpr, FP: tl.constexpr, M: tl.constexpr, MP: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0)
    f, m = tl.arange(0, FP), tl.arange(0, MP)
    of_slot = (m < M)[:, None] & (f < F)[None, :]
    at = (image * M + m)[:, None] * F + f[None, :]
    query = tl.load(queries + at, mask=of_slot, other=0.0)
    offset = tl.load(offsets + image * M + m, mask=m < M, other=0.0)
    total = tl.load(totals + image * M + m, mask=m < M, other=1.0)
    to_sums = tl.load(gradient + at, mask=of_slot, other=0.0) / total[:, None]
    # Each weight also changes the total that the means are divided by.
    mean = tl.sum(tl.load(pooled + at, mask=of_slot, other=0.0) * to_sums, 1)
    features += image.to(tl.int64) * n * F
    to_features += image.to(tl.int64) * n * F
    to_query, to_offset = tl.zeros((MP, FP), tl.float32), tl.zeros((MP,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row < n)[:, None] & (f < F)[None, :]
        x = tl.load(features + row[:, None] * F + f[None, :], mask=mask, other=0.0)
        share = _shares(x, query, offset, m < M, PRECISION)
        narrow = to_sums.to(x.dtype)
        to_share = tl.dot(x, tl.trans(narrow), input_precision=PRECISION) - mean[None, :]
        to_score = share * (to_share - tl.sum(share * to_share, 1)[:, None])
        to_score = tl.where((row < n)[:, None], to_score, 0.0)
        weight = tl.where((m < M)[None, :], share + epsilon, 0.0)
        to_x = tl.dot(to_score.to(x.dtype), query, input_precision=PRECISION)
        to_x += tl.dot(weight.to(x.dtype), narrow, input_precision=PRECISION)
        place = to_features + row[:, None] * F + f[None, :]
        tl.store(place, to_x.to(to_features.dtype.element_ty), mask=mask)
        to_query += tl.dot(tl.trans(to_score.to(x.dtype)), x, input_precision=PRECISION)
        to_offset += tl.sum(to_score, 0)
    tl.store(to_queries + at, to_query, mask=of_slot)
    tl.store(to_offsets + image * M + m, to_offset, mask=m < M)


def forward(
    features: Float[Tensor, "*batch n F"],
    queries: Float[Tensor, "*batch M F"],
    offsets: Float[Tensor, "*batch M"],
    epsilon: float,
) -> tuple[Float[Tensor, "*batch M F"], Float[Tensor, "*batch M"]]:
    """The weighted means, and the sums of weights that they were divided by."""
    (n, size), slots = features.shape[-2:], queries.shape[-2]
    pooled = queries.new_empty(queries.shape, dtype=torch.float32)
    totals = queries.new_empty(offsets.shape, dtype=torch.float32)
    _forward[(offsets.numel() // slots,)](
        features, queries, offsets, pooled, totals, n, epsilon,
        F=size, FP=tensor_core_size(size), M=slots, MP=tensor_core_size(slots), ROWS=ROWS,
        PRECISION=dot_precision(precision(features)), num_warps=WARPS,
    )  # fmt: skip
    return pooled, totals


def backward(
    features: Float[Tensor, "*batch n F"],
    queries: Float[Tensor, "*batch M F"],
    offsets: Float[Tensor, "*batch M"],
    pooled: Float[Tensor, "*batch M F"],
    totals: Float[Tensor, "*batch M"],
    gradient: Float[Tensor, "*batch M F"],
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of features, queries and offsets."""
    (n, size), slots = features.shape[-2:], queries.shape[-2]
    to_features = torch.empty_like(features)
    to_queries, to_offsets = torch.empty_like(pooled), torch.empty_like(totals)
    _backward[(offsets.numel() // slots,)](
        features, queries, offsets, pooled, totals, gradient, to_features, to_queries, to_offsets,
        n, epsilon,
        F=size, FP=tensor_core_size(size), M=slots, MP=tensor_core_size(slots), ROWS=ROWS,
        PRECISION=dot_precision(precision(features)), num_warps=WARPS,
    )  # fmt: skip
    return to_features, to_queries, to_offsets
