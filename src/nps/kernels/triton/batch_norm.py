"""Batch normalisation and activation (nps/kernels/batch_norm.py) of S seeds at once, in Triton.

Forward they read x twice and write y; backward they read x and the gradient twice, and write one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from nps.kernels.triton.common import per_column, power_of_2, split_rows
from nps.kernels.triton.moments import _tile, moments

if TYPE_CHECKING:
    from jaxtyping import Float

BLOCK = 4096
"""Numbers that a program takes at once."""


@triton.jit
def _forward(
    x, weight, bias, mean, variance, result, rows,
    SLOPE: tl.constexpr, EPSILON: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    first, seed = tl.program_id(0) * ROWS, tl.program_id(1)
    inverse = tl.rsqrt(per_column(variance, seed, C, CP) + EPSILON)
    at, mask = _tile(first, rows, seed, C, CP, ROWS)
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    unit = (value - per_column(mean, seed, C, CP)) * inverse
    z = unit * per_column(weight, seed, C, CP) + per_column(bias, seed, C, CP)
    tl.store(result + at, tl.where(z > 0, z, SLOPE * z).to(result.dtype.element_ty), mask=mask)


@triton.jit
def _sums(
    gradient, x, weight, bias, mean, variance, sums, rows, share,
    SLOPE: tl.constexpr, EPSILON: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """A share of the gradients of weight and bias."""
    part, seed = tl.program_id(0), tl.program_id(1)
    inverse = tl.rsqrt(per_column(variance, seed, C, CP) + EPSILON)
    m, w, b = (
        per_column(mean, seed, C, CP),
        per_column(weight, seed, C, CP),
        per_column(bias, seed, C, CP),
    )
    to_weight = tl.zeros((ROWS, CP), tl.float32)
    to_bias = tl.zeros((ROWS, CP), tl.float32)
    for first in range(part * share, (part + 1) * share, ROWS):
        at, mask = _tile(first, rows, seed, C, CP, ROWS)
        unit = (tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - m) * inverse
        g = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
        g = tl.where(unit * w + b > 0, g, SLOPE * g)
        to_weight += g * unit
        to_bias += g
    c = tl.arange(0, CP)
    at = (seed * tl.num_programs(0) + part) * C + c
    tl.store(sums + at, tl.sum(to_weight, 0), mask=c < C)
    at += tl.num_programs(1) * tl.num_programs(0) * C
    tl.store(sums + at, tl.sum(to_bias, 0), mask=c < C)


@triton.jit
def _backward(
    gradient, x, weight, bias, mean, variance, to_weight, to_bias, to_x, rows,
    SLOPE: tl.constexpr, EPSILON: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    first, seed = tl.program_id(0) * ROWS, tl.program_id(1)
    inverse = tl.rsqrt(per_column(variance, seed, C, CP) + EPSILON)
    w = per_column(weight, seed, C, CP)
    at, mask = _tile(first, rows, seed, C, CP, ROWS)
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    unit = (value - per_column(mean, seed, C, CP)) * inverse
    g = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
    g = tl.where(unit * w + per_column(bias, seed, C, CP) > 0, g, SLOPE * g)
    along, shift = (
        per_column(to_weight, seed, C, CP) / rows,
        per_column(to_bias, seed, C, CP) / rows,
    )
    g = (g - shift - unit * along) * (inverse * w)
    tl.store(to_x + at, g.to(to_x.dtype.element_ty), mask=mask)


def forward(
    x: Float[Tensor, "S *rows C"],
    weight: Float[Tensor, "S C"],
    bias: Float[Tensor, "S C"],
    *,
    slope: float,
    epsilon: float,
) -> tuple[Float[Tensor, "S *rows C"], Float[Tensor, "S C"], Float[Tensor, "S C"]]:
    """The activations, and mean and biased variance of every channel."""
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    mean, variance = moments(x)
    result, (rows, tile, sizes) = torch.empty_like(x), _sizes(x)
    _forward[(triton.cdiv(rows, tile), len(x))](
        x, weight, bias, mean, variance, result, rows, slope, epsilon, **sizes
    )
    return result, mean, variance


def backward(
    gradient: Float[Tensor, "S *rows C"],
    x: Float[Tensor, "S *rows C"],
    weight: Float[Tensor, "S C"],
    bias: Float[Tensor, "S C"],
    mean: Float[Tensor, "S C"],
    variance: Float[Tensor, "S C"],
    *,
    slope: float,
    epsilon: float,
) -> tuple[Float[Tensor, "S *rows C"], Float[Tensor, "S C"], Float[Tensor, "S C"]]:
    inputs = [v.contiguous() for v in (gradient, x, weight, bias, mean, variance)]
    x, (rows, tile, sizes) = inputs[1], _sizes(x)
    share, parts = split_rows(rows, tile, len(x))
    sums = x.new_empty(2, len(x), parts, x.shape[-1], dtype=torch.float32)
    _sums[(parts, len(x))](*inputs, sums, rows, share, slope, epsilon, **sizes)
    to_weight, to_bias = sums.sum(2)
    to_x = torch.empty_like(x)
    _backward[(triton.cdiv(rows, tile), len(x))](
        *inputs, to_weight, to_bias, to_x, rows, slope, epsilon, **sizes
    )
    return to_x, to_weight, to_bias


def _sizes(x: Tensor) -> tuple[int, int, dict[str, int]]:
    """Rows of a seed, rows that a program takes at once, and the sizes that programs know."""
    channels, padded = x.shape[-1], power_of_2(x.shape[-1])
    tile = max(1, BLOCK // padded)
    return x.shape[1:-1].numel(), tile, {"C": channels, "CP": padded, "ROWS": tile}
