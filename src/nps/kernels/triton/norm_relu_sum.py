"""Normalisation, ReLU and sum (nps/kernels/norm_relu_sum.py) of S seeds at once, in Triton.

For 20 seeds of 2,048 images of three slots and rows of 512 numbers, x is 126 MB in bf16, and these
kernels move little more than three times that, forward and backward (five times with one row per
sum).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from nps.kernels.triton.common import per_column, power_of_2, split_rows

if TYPE_CHECKING:
    from jaxtyping import Float

BLOCK = 2048
"""Numbers that a program takes at once."""


@triton.jit
def _normalised(
    x, at, mask, EPSILON: tl.constexpr, H: tl.constexpr
):  # fmt: skip
    """Rows of mean 0 and variance 1, and the factor of each."""
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    centred = tl.where(mask, value - (tl.sum(value, 1) / H)[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, 1) / H + EPSILON)[:, None]
    return centred * inverse, inverse


@triton.jit
def _forward(
    x, weight, bias, result, groups,
    EPSILON: tl.constexpr, P: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The sums of some groups of P rows."""
    seed, c = tl.program_id(1).to(tl.int64), tl.arange(0, HP)[None, :]
    w, b = per_column(weight, seed, H, HP), per_column(bias, seed, H, HP)
    group = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask = (group < groups)[:, None] & (c < H)
    first = (seed * groups + group)[:, None]
    total = tl.zeros((ROWS, HP), tl.float32)
    for p in range(P):
        unit, _ = _normalised(x, (first * P + p) * H + c, mask, EPSILON, H)
        total += tl.maximum(unit * w + b, 0.0)
    tl.store(result + first * H + c, total.to(result.dtype.element_ty), mask=mask)


@triton.jit
def _backward(
    gradient, x, weight, bias, to_x, sums, groups, share,
    EPSILON: tl.constexpr, P: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradient of x in a share of the groups, and their part of those of weight and bias."""
    part, seed, c = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, HP)[None, :]
    w, b = per_column(weight, seed, H, HP), per_column(bias, seed, H, HP)
    to_weight = tl.zeros((ROWS, HP), tl.float32)
    to_bias = tl.zeros((ROWS, HP), tl.float32)
    for begin in range(part * share, (part + 1) * share, ROWS):
        group = begin + tl.arange(0, ROWS)
        mask = (group < groups)[:, None] & (c < H)
        first = (seed * groups + group)[:, None]
        g = tl.load(gradient + first * H + c, mask=mask, other=0.0).to(tl.float32)
        for p in range(P):
            at = (first * P + p) * H + c
            unit, inverse = _normalised(x, at, mask, EPSILON, H)
            own = tl.where(unit * w + b > 0, g, 0.0)
            to_weight += own * unit
            to_bias += own
            own *= w
            along = (tl.sum(own * unit, 1) / H)[:, None]
            own = (own - (tl.sum(own, 1) / H)[:, None] - unit * along) * inverse
            tl.store(to_x + at, own.to(to_x.dtype.element_ty), mask=mask)
    column = tl.arange(0, HP)
    sums += (seed * tl.num_programs(0) + part) * 2 * H
    tl.store(sums + column, tl.sum(to_weight, 0), mask=column < H)
    tl.store(sums + H + column, tl.sum(to_bias, 0), mask=column < H)


def forward(
    x: Float[Tensor, "S *batch P H"],
    weight: Float[Tensor, "S H"],
    bias: Float[Tensor, "S H"],
    *,
    epsilon: float,
) -> Float[Tensor, "S groups H"]:
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    groups, sizes = x.shape[1:-2].numel(), _width(x)
    rows = _rows(sizes)
    result = x.new_empty(len(x), groups, x.shape[-1])
    _forward[(triton.cdiv(groups, rows), len(x))](
        x, weight, bias, result, groups, epsilon, x.shape[-2], **sizes, ROWS=rows
    )
    return result


def backward(
    gradient: Float[Tensor, "S *batch H"],
    x: Float[Tensor, "S *batch P H"],
    weight: Float[Tensor, "S H"],
    bias: Float[Tensor, "S H"],
    *,
    epsilon: float,
) -> tuple[Float[Tensor, "S *batch P H"], Float[Tensor, "S H"], Float[Tensor, "S H"]]:
    inputs = [v.contiguous() for v in (gradient, x, weight, bias)]
    x, groups, sizes = inputs[1], x.shape[1:-2].numel(), _width(x)
    rows = _rows(sizes)
    share, parts = split_rows(groups, rows, len(x))
    sums = x.new_empty(len(x), parts, 2, x.shape[-1], dtype=torch.float32)
    to_x = torch.empty_like(x)
    _backward[(parts, len(x))](
        *inputs, to_x, sums, groups, share, epsilon, x.shape[-2], **sizes, ROWS=rows
    )
    to_weight, to_bias = sums.sum(1).unbind(1)
    return to_x, to_weight, to_bias


def _width(x: Tensor) -> dict[str, int]:
    return {"H": x.shape[-1], "HP": power_of_2(x.shape[-1])}


def _rows(sizes: dict[str, int]) -> int:
    return max(1, BLOCK // sizes["HP"])
