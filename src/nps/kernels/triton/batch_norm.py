"""Batch normalisation (nps/kernels/batch_norm.py) of S seeds at once, in Triton.

Four kernels go over all rows, P bytes: `_moments` (P) and `_apply` (2 P) forward, `_sums` (2 P) and
`_to_input` (3 P) backward. For 5 seeds of 1,024 images of 50 × 50 pixels and 32 channels in
float32, P is 1.64 GB and the total 13.1 GB.
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

    from nps.kernels.batch_norm import Settings


@triton.jit
def _row(values, seed, C: tl.constexpr, CP: tl.constexpr):
    """The parameters of all channels."""
    c = tl.arange(0, CP)
    return tl.load(values + seed * C + c, mask=c < C, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _tile(first, rows, seed, C: tl.constexpr, CP: tl.constexpr, ROWS: tl.constexpr):
    """Offsets of the rows from `first` on, and a mask of those that exist."""
    r, c = tl.arange(0, ROWS), tl.arange(0, CP)
    begin = (seed.to(tl.int64) * rows + first) * C
    there = (first + r < rows)[:, None] & (c < C)[None, :]
    return begin + r[:, None] * C + c[None, :], there


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
        at, there = _tile(first, rows, seed, C, CP, ROWS)
        value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
        count += tl.where(first + tl.arange(0, ROWS) < rows, 1.0, 0.0)
        change = tl.where(there, value - mean, 0.0)
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
    C: tl.constexpr, CP: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Mean and variance of all rows from the moments of the shares."""
    seed, c = tl.program_id(0), tl.arange(0, CP)
    total = tl.zeros((PARTS, CP), tl.float32)
    for first in range(0, parts, PARTS):
        at, there = _tile(first, parts, seed, C, CP, PARTS)
        part = first + tl.arange(0, PARTS)
        count = tl.minimum(tl.maximum(rows - part * share, 0), share).to(tl.float32)
        total += tl.load(means + at, mask=there, other=0.0) * count[:, None]
    average = tl.sum(total, 0) / rows
    total = tl.zeros((PARTS, CP), tl.float32)
    for first in range(0, parts, PARTS):
        at, there = _tile(first, parts, seed, C, CP, PARTS)
        part = first + tl.arange(0, PARTS)
        count = tl.minimum(tl.maximum(rows - part * share, 0), share).to(tl.float32)
        apart = tl.load(means + at, mask=there, other=0.0) - average[None, :]
        total += tl.load(squares + at, mask=there, other=0.0) + apart * apart * count[:, None]
    tl.store(mean + seed * C + c, average, mask=c < C)
    tl.store(variance + seed * C + c, tl.sum(total, 0) / rows, mask=c < C)


@triton.jit
def _apply(
    x, weight, bias, mean, variance, y, rows,
    SLOPE: tl.constexpr, EPSILON: tl.constexpr,
    C: tl.constexpr, CP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    seed = tl.program_id(1)
    inverse = tl.rsqrt(_row(variance, seed, C, CP) + EPSILON)
    at, there = _tile(tl.program_id(0) * ROWS, rows, seed, C, CP, ROWS)
    value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    unit = (value - _row(mean, seed, C, CP)) * inverse
    z = unit * _row(weight, seed, C, CP) + _row(bias, seed, C, CP)
    z = tl.where(z > 0, z, z * SLOPE)
    tl.store(y + at, z.to(y.dtype.element_ty), mask=there)


@triton.jit
def _before(gradient, unit, weight, bias, SLOPE: tl.constexpr):
    """The gradient before the activation, whose sign is recomputed from the input."""
    return tl.where(unit * weight + bias > 0, gradient, gradient * SLOPE)


@triton.jit
def _sums(
    gradient, x, weight, bias, mean, variance, sums, rows, share,
    SLOPE: tl.constexpr, EPSILON: tl.constexpr,
    C: tl.constexpr, CP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of weight and bias, summed over a share of the rows."""
    part, seed = tl.program_id(0), tl.program_id(1)
    inverse = tl.rsqrt(_row(variance, seed, C, CP) + EPSILON)
    middle = _row(mean, seed, C, CP)
    w, b = _row(weight, seed, C, CP), _row(bias, seed, C, CP)
    to_weight = tl.zeros((ROWS, CP), tl.float32)
    to_bias = tl.zeros((ROWS, CP), tl.float32)
    for first in range(part * share, (part + 1) * share, ROWS):
        at, there = _tile(first, rows, seed, C, CP, ROWS)
        g = tl.load(gradient + at, mask=there, other=0.0).to(tl.float32)
        unit = (tl.load(x + at, mask=there, other=0.0).to(tl.float32) - middle) * inverse
        g = _before(g, unit, w, b, SLOPE)
        to_weight += g * unit
        to_bias += g
    c = tl.arange(0, CP)
    sums += (seed * tl.num_programs(0) + part) * 2 * C
    tl.store(sums + c, tl.sum(to_weight, 0), mask=c < C)
    tl.store(sums + C + c, tl.sum(to_bias, 0), mask=c < C)


@triton.jit
def _to_input(
    gradient, x, weight, bias, mean, variance, to_weight, to_bias, to_x, rows,
    SLOPE: tl.constexpr, EPSILON: tl.constexpr, OF_BATCH: tl.constexpr,
    C: tl.constexpr, CP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    seed = tl.program_id(1)
    inverse = tl.rsqrt(_row(variance, seed, C, CP) + EPSILON)
    w = _row(weight, seed, C, CP)
    at, there = _tile(tl.program_id(0) * ROWS, rows, seed, C, CP, ROWS)
    g = tl.load(gradient + at, mask=there, other=0.0).to(tl.float32)
    unit = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    unit = (unit - _row(mean, seed, C, CP)) * inverse
    g = _before(g, unit, w, _row(bias, seed, C, CP), SLOPE)
    if OF_BATCH:
        through = _row(to_bias, seed, C, CP) + unit * _row(to_weight, seed, C, CP)
        g -= through / rows
    tl.store(to_x + at, (g * w * inverse).to(to_x.dtype.element_ty), mask=there)


BLOCK = 2048
"""Numbers that a program takes at once."""
WARPS = 4


def forward(
    x: Float[Tensor, "S *rows C"],
    weight: Float[Tensor, "S C"],
    bias: Float[Tensor, "S C"],
    *given: Float[Tensor, "S C"],
    settings: Settings,
) -> tuple[Tensor, ...]:
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    sizes = _sizes(x)
    mean, variance = (v.contiguous() for v in given) if given else moments(x)
    y = torch.empty_like(x)
    rows, grid = _grid(x, sizes["ROWS"])
    _apply[grid](
        x, weight, bias, mean, variance, y, rows,
        settings.slope, settings.epsilon, **sizes, num_warps=WARPS,
    )  # fmt: skip
    return (y,) if given else (y, mean, variance)


def moments(x: Float[Tensor, "S *rows C"]) -> tuple[Float[Tensor, "S C"], Float[Tensor, "S C"]]:
    """Mean and biased variance of every channel."""
    seeds, channels = len(x), x.shape[-1]
    sizes = _sizes(x)
    rows, share, parts = _shares(x, sizes["ROWS"])
    means, squares = x.new_empty(2, seeds, parts, channels, dtype=torch.float32)
    mean, variance = x.new_empty(2, seeds, channels, dtype=torch.float32)
    _moments[(parts, seeds)](x, means, squares, rows, share, **sizes, num_warps=WARPS)
    _combine[(seeds,)](
        means, squares, mean, variance, rows, share, parts,
        channels, sizes["CP"], PARTS=max(1, BLOCK // sizes["CP"]),
    )  # fmt: skip
    return mean, variance


def backward(
    gradient: Float[Tensor, "S *rows C"],
    x: Float[Tensor, "S *rows C"],
    weight: Float[Tensor, "S C"],
    bias: Float[Tensor, "S C"],
    mean: Float[Tensor, "S C"],
    variance: Float[Tensor, "S C"],
    *,
    settings: Settings,
) -> tuple[Tensor, Tensor, Tensor]:
    inputs = [v.contiguous() for v in (gradient, x, weight, bias, mean, variance)]
    x, sizes = inputs[1], _sizes(x)
    rows, share, parts = _shares(x, sizes["ROWS"])
    sums = x.new_empty(len(x), parts, 2, x.shape[-1], dtype=torch.float32)
    _sums[(parts, len(x))](
        *inputs, sums, rows, share, settings.slope, settings.epsilon, **sizes, num_warps=WARPS
    )
    to_weight, to_bias = sums.sum(1).unbind(1)
    to_weight, to_bias = to_weight.contiguous(), to_bias.contiguous()
    to_x = torch.empty_like(x)
    rows, grid = _grid(x, sizes["ROWS"])
    _to_input[grid](
        *inputs, to_weight, to_bias, to_x, rows,
        settings.slope, settings.epsilon, settings.of_batch, **sizes, num_warps=WARPS,
    )  # fmt: skip
    return to_x, to_weight.to(weight.dtype), to_bias.to(bias.dtype)


def _sizes(x: Tensor) -> dict[str, int]:
    channels = x.shape[-1]
    padded = power_of_2(channels)
    return {"C": channels, "CP": padded, "ROWS": max(1, BLOCK // padded)}


def _grid(x: Tensor, lines: int) -> tuple[int, tuple[int, int]]:
    """Rows of a seed, and the grid: a program for every `lines` rows of each seed."""
    rows = x.shape[1:-1].numel()
    return rows, (triton.cdiv(rows, lines), len(x))


def _shares(x: Tensor, lines: int) -> tuple[int, int, int]:
    """Rows of a seed, rows that a program sums, and programs."""
    rows = x.shape[1:-1].numel()
    return rows, *split_rows(rows, lines, len(x))
