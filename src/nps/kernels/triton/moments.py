"""Mean and variance of every channel, for S seeds at once, in Triton.

Programs take a share of the rows each; `_combine` puts their moments together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from nps.kernels.triton.common import power_of_2, split_rows

if TYPE_CHECKING:
    from jaxtyping import Float

BLOCK = 2048
"""Numbers that a program takes at once."""
PARTS, CHANNELS = 128, 16
"""What a program that combines takes at once."""


@triton.jit
def _tile(first, rows, seed, C: tl.constexpr, CP: tl.constexpr, ROWS: tl.constexpr):
    """Offsets of the rows from `first` on, and a mask of those that exist."""
    r, c = tl.arange(0, ROWS), tl.arange(0, CP)
    begin = (seed.to(tl.int64) * rows + first) * C
    mask = (first + r < rows)[:, None] & (c < C)[None, :]
    return begin + r[:, None] * C + c[None, :], mask


@triton.jit
def _moments(x, means, squares, rows, share, C: tl.constexpr, CP: tl.constexpr, ROWS: tl.constexpr):
    """Mean and sum of squared deviations of a share of the rows.

    Each line of the tile keeps its own running mean (Welford's algorithm), which avoids the
    difference of two large numbers.
    """
    part, seed = tl.program_id(0), tl.program_id(1)
    mean = tl.zeros((ROWS, CP), tl.float32)
    square = tl.zeros((ROWS, CP), tl.float32)
    count = tl.zeros((ROWS,), tl.float32)
    for first in range(part * share, (part + 1) * share, ROWS):
        at, mask = _tile(first, rows, seed, C, CP, ROWS)
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        count += tl.where(first + tl.arange(0, ROWS) < rows, 1.0, 0.0)
        change = tl.where(mask, value - mean, 0.0)
        mean += change * (1.0 / tl.maximum(count, 1.0))[:, None]
        square += change * (value - mean)
    average = tl.sum(mean * count[:, None], 0) / tl.sum(count, 0)
    apart = mean - average[None, :]
    c = tl.arange(0, CP)
    at = (seed * tl.num_programs(0) + part) * C + c
    tl.store(means + at, average, mask=c < C)
    tl.store(squares + at, tl.sum(square + apart * apart * count[:, None], 0), mask=c < C)


@triton.jit
def _combine(
    means, squares, mean, variance, rows, share, parts,
    C: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Mean and variance of all rows, for some of the channels, from the moments of the shares."""
    seed, c = tl.program_id(0), tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros((PARTS, CHANNELS), tl.float32)
    for first in range(0, parts, PARTS):
        at, mask, count = _parts(first, seed, c, rows, share, parts, C, PARTS)
        total += tl.load(means + at, mask=mask, other=0.0) * count
    average = tl.sum(total, 0) / rows
    total = tl.zeros((PARTS, CHANNELS), tl.float32)
    for first in range(0, parts, PARTS):
        at, mask, count = _parts(first, seed, c, rows, share, parts, C, PARTS)
        apart = tl.load(means + at, mask=mask, other=0.0) - average[None, :]
        total += tl.load(squares + at, mask=mask, other=0.0) + apart * apart * count
    tl.store(mean + seed * C + c, average, mask=c < C)
    tl.store(variance + seed * C + c, tl.sum(total, 0) / rows, mask=c < C)


@triton.jit
def _parts(first, seed, c, rows, share, parts, C: tl.constexpr, PARTS: tl.constexpr):
    """Offsets of the parts from `first` on, a mask of those that exist, and their rows."""
    part = first + tl.arange(0, PARTS)
    at = (seed * parts + part)[:, None] * C + c[None, :]
    count = tl.minimum(tl.maximum(rows - part * share, 0), share).to(tl.float32)
    return at, (part < parts)[:, None] & (c < C)[None, :], count[:, None]


def moments(x: Float[Tensor, "S *rows C"]) -> tuple[Float[Tensor, "S C"], Float[Tensor, "S C"]]:
    """Mean and biased variance of every channel."""
    seeds, channels, rows = len(x), x.shape[-1], x.shape[1:-1].numel()
    padded = power_of_2(channels)
    tile = max(1, BLOCK // padded)
    share, parts = split_rows(rows, tile, seeds)
    means, squares = x.new_empty(2, seeds, parts, channels, dtype=torch.float32)
    mean, variance = x.new_empty(2, seeds, channels, dtype=torch.float32)
    _moments[(parts, seeds)](
        x, means, squares, rows, share, C=channels, CP=padded, ROWS=tile, num_warps=4
    )
    _combine[(seeds, triton.cdiv(channels, CHANNELS))](
        means, squares, mean, variance, rows, share, parts, channels, PARTS, CHANNELS
    )
    return mean, variance
