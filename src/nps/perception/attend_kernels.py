"""What slot attention does with every pixel (attend.py), on a GPU in Triton.

Features are short rows in great number, which torch normalises a block of threads each, and slots
are few, which its products pad to tiles of many. Here a program takes many rows at once, with whole
features and all slots in registers: a pass reads the features once, and scores, softmax and weights
never reach the memory. Leading dimensions are all alike, a stack of seeds is more images.

Sums run in a fixed order, so that a run can be repeated and resumed bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from nps.perception.convolution_kernels import _dot, _precision

if TYPE_CHECKING:
    from jaxtyping import Float

ROWS = 64
"""Features that a program takes at a time."""
WARPS = 4


@triton.jit
def _normalise(
    x, added, output, spread, rows, per_seed, n, epsilon,
    F: tl.constexpr, FP: tl.constexpr, ADDED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    f = tl.arange(0, FP)
    there = (row < rows)[:, None] & (f < F)[None, :]
    at = row[:, None] * F + f[None, :]
    value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    if ADDED:
        place = (row // per_seed * n + row % n)[:, None] * F + f[None, :]
        value += tl.load(added + place, mask=there, other=0.0).to(tl.float32)
    value -= (tl.sum(value, 1) / F)[:, None]
    value = tl.where(there, value, 0.0)
    factor = 1.0 / tl.sqrt(tl.sum(value * value, 1) / F + epsilon)
    tl.store(output + at, (value * factor[:, None]).to(output.dtype.element_ty), mask=there)
    tl.store(spread + row, factor, mask=row < rows)


@triton.jit
def _normalise_back(
    gradient, normal, spread, to_x, rows,
    F: tl.constexpr, FP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    f = tl.arange(0, FP)
    there = (row < rows)[:, None] & (f < F)[None, :]
    at = row[:, None] * F + f[None, :]
    g = tl.load(gradient + at, mask=there, other=0.0).to(tl.float32)
    y = tl.load(normal + at, mask=there, other=0.0).to(tl.float32)
    factor = tl.load(spread + row, mask=row < rows, other=0.0)
    g -= (tl.sum(g, 1) / F)[:, None] + y * (tl.sum(g * y, 1) / F)[:, None]
    tl.store(to_x + at, (g * factor[:, None]).to(to_x.dtype.element_ty), mask=there)


@triton.jit
def _won(x, query, offset, slot, PRECISION: tl.constexpr):
    """The softmax over slots for some features."""
    scores = tl.dot(x, tl.trans(query), input_precision=PRECISION) + offset[None, :]
    scores = tl.where(slot[None, :], scores, float("-inf"))
    scores = tl.exp(scores - tl.max(scores, 1)[:, None])
    return scores / tl.sum(scores, 1)[:, None]


@triton.jit
def _attend(
    features, queries, offsets, pooled, totals, n, epsilon,
    F: tl.constexpr, FP: tl.constexpr, M: tl.constexpr, MP: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """An image a program."""
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
        there = (row < n)[:, None] & (f < F)[None, :]
        x = tl.load(features + row[:, None] * F + f[None, :], mask=there, other=0.0)
        weight = _won(x, query, offset, m < M, PRECISION) + epsilon
        weight = tl.where((row < n)[:, None] & (m < M)[None, :], weight, 0.0)
        sums += tl.dot(tl.trans(weight.to(x.dtype)), x, input_precision=PRECISION)
        total += tl.sum(weight, 0)
    tl.store(pooled + at, sums / total[:, None], mask=of_slot)
    tl.store(totals + image * M + m, total, mask=m < M)


@triton.jit
def _attend_back(
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
    # A weight's share of its total: all of them move the mean away from what it was.
    mean = tl.sum(tl.load(pooled + at, mask=of_slot, other=0.0) * to_sums, 1)
    features += image.to(tl.int64) * n * F
    to_features += image.to(tl.int64) * n * F
    to_query, to_offset = tl.zeros((MP, FP), tl.float32), tl.zeros((MP,), tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)
        there = (row < n)[:, None] & (f < F)[None, :]
        x = tl.load(features + row[:, None] * F + f[None, :], mask=there, other=0.0)
        won = _won(x, query, offset, m < M, PRECISION)
        near = to_sums.to(x.dtype)
        to_won = tl.dot(x, tl.trans(near), input_precision=PRECISION) - mean[None, :]
        to_score = won * (to_won - tl.sum(won * to_won, 1)[:, None])
        to_score = tl.where((row < n)[:, None], to_score, 0.0)
        weight = tl.where((m < M)[None, :], won + epsilon, 0.0)
        to_x = tl.dot(to_score.to(x.dtype), query, input_precision=PRECISION)
        to_x += tl.dot(weight.to(x.dtype), near, input_precision=PRECISION)
        place = to_features + row[:, None] * F + f[None, :]
        tl.store(place, to_x.to(to_features.dtype.element_ty), mask=there)
        to_query += tl.dot(tl.trans(to_score.to(x.dtype)), x, input_precision=PRECISION)
        to_offset += tl.sum(to_score, 0)
    tl.store(to_queries + at, to_query, mask=of_slot)
    tl.store(to_offsets + image * M + m, to_offset, mask=m < M)


def normalise(
    x: Float[Tensor, "*batch n F"], added: Float[Tensor, "*seeds n F"] | None, epsilon: float
) -> tuple[Float[Tensor, "*batch n F"], Float[Tensor, "*batch n"]]:
    """Rows normalised, and the factor of each. What is added may differ between seeds, which are
    the first dimension of x then."""
    rows, n, size = x.numel() // x.shape[-1], x.shape[-2], x.shape[-1]
    per_seed = rows if added is None or added.dim() == 2 else rows // len(added)
    output, spread = torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.float32)
    _normalise[(triton.cdiv(rows, ROWS),)](
        x, x if added is None else added, output, spread, rows, per_seed, n, epsilon,
        F=size, FP=_power(size), ADDED=added is not None, ROWS=ROWS, num_warps=WARPS,
    )  # fmt: skip
    return output, spread


def normalise_back(
    gradient: Float[Tensor, "*batch n F"],
    normal: Float[Tensor, "*batch n F"],
    spread: Float[Tensor, "*batch n"],
) -> Float[Tensor, "*batch n F"]:
    to_x, size = torch.empty_like(normal), normal.shape[-1]
    _normalise_back[(triton.cdiv(spread.numel(), ROWS),)](
        gradient, normal, spread, to_x, spread.numel(),
        F=size, FP=_power(size), ROWS=ROWS, num_warps=WARPS,
    )  # fmt: skip
    return to_x


def attend(
    features: Float[Tensor, "*batch n F"],
    queries: Float[Tensor, "*batch M F"],
    offsets: Float[Tensor, "*batch M"],
    epsilon: float,
) -> tuple[Float[Tensor, "*batch M F"], Float[Tensor, "*batch M"]]:
    """The means, and the sums of weights they were divided by."""
    (n, size), slots = features.shape[-2:], queries.shape[-2]
    pooled = queries.new_empty(queries.shape, dtype=torch.float32)
    totals = queries.new_empty(offsets.shape, dtype=torch.float32)
    _attend[(offsets.numel() // slots,)](
        features, queries, offsets, pooled, totals, n, epsilon,
        F=size, FP=_power(size), M=slots, MP=_power(slots), ROWS=ROWS,
        PRECISION=_dot(_precision(features)), num_warps=WARPS,
    )  # fmt: skip
    return pooled, totals


def attend_back(
    features: Float[Tensor, "*batch n F"],
    queries: Float[Tensor, "*batch M F"],
    offsets: Float[Tensor, "*batch M"],
    pooled: Float[Tensor, "*batch M F"],
    totals: Float[Tensor, "*batch M"],
    gradient: Float[Tensor, "*batch M F"],
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients to features, queries and offsets."""
    (n, size), slots = features.shape[-2:], queries.shape[-2]
    to_features = torch.empty_like(features)
    to_queries, to_offsets = torch.empty_like(pooled), torch.empty_like(totals)
    _attend_back[(offsets.numel() // slots,)](
        features, queries, offsets, pooled, totals, gradient, to_features, to_queries, to_offsets,
        n, epsilon,
        F=size, FP=_power(size), M=slots, MP=_power(slots), ROWS=ROWS,
        PRECISION=_dot(_precision(features)), num_warps=WARPS,
    )  # fmt: skip
    return to_features, to_queries, to_offsets


def _power(size: int) -> int:
    """What a product on tensor cores takes: a power of two, 16 at least."""
    return max(16, int(triton.next_power_of_2(size)))
