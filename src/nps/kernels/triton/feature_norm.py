"""Layer normalisation of short rows (nps/kernels/feature_norm.py), in Triton.

torch normalises a row with a whole block of threads, which short rows in great number do not fill.
Here a program takes many rows at once. Leading dimensions are all alike: seeds are more images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from nps.kernels.triton.common import tensor_core_size

if TYPE_CHECKING:
    from jaxtyping import Float

ROWS = 64
"""Features that a program takes at a time."""
WARPS = 4


@triton.jit
def _forward(
    x, added, output, spread, rows, per_seed, n, epsilon,
    F: tl.constexpr, FP: tl.constexpr, ADDED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    f = tl.arange(0, FP)
    mask = (row < rows)[:, None] & (f < F)[None, :]
    at = row[:, None] * F + f[None, :]
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    if ADDED:
        place = (row // per_seed * n + row % n)[:, None] * F + f[None, :]
        value += tl.load(added + place, mask=mask, other=0.0).to(tl.float32)
    value -= (tl.sum(value, 1) / F)[:, None]
    value = tl.where(mask, value, 0.0)
    factor = 1.0 / tl.sqrt(tl.sum(value * value, 1) / F + epsilon)
    tl.store(output + at, (value * factor[:, None]).to(output.dtype.element_ty), mask=mask)
    tl.store(spread + row, factor, mask=row < rows)


@triton.jit
def _backward(
    gradient, normal, spread, to_x, rows,
    F: tl.constexpr, FP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    f = tl.arange(0, FP)
    mask = (row < rows)[:, None] & (f < F)[None, :]
    at = row[:, None] * F + f[None, :]
    g = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(normal + at, mask=mask, other=0.0).to(tl.float32)
    factor = tl.load(spread + row, mask=row < rows, other=0.0)
    g -= (tl.sum(g, 1) / F)[:, None] + y * (tl.sum(g * y, 1) / F)[:, None]
    tl.store(to_x + at, (g * factor[:, None]).to(to_x.dtype.element_ty), mask=mask)


def forward(
    x: Float[Tensor, "*batch n F"], added: Float[Tensor, "*seeds n F"] | None, epsilon: float
) -> tuple[Float[Tensor, "*batch n F"], Float[Tensor, "*batch n"]]:
    """The normalised rows, and the factor of each.

    What is added may differ between seeds, which are then the first dimension of x.
    """
    rows, n, size = x.numel() // x.shape[-1], x.shape[-2], x.shape[-1]
    per_seed = rows if added is None or added.dim() == 2 else rows // len(added)
    output, spread = torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.float32)
    _forward[(triton.cdiv(rows, ROWS),)](
        x, x if added is None else added, output, spread, rows, per_seed, n, epsilon,
        F=size, FP=tensor_core_size(size), ADDED=added is not None, ROWS=ROWS, num_warps=WARPS,
    )  # fmt: skip
    return output, spread


def backward(
    gradient: Float[Tensor, "*batch n F"],
    normal: Float[Tensor, "*batch n F"],
    spread: Float[Tensor, "*batch n"],
) -> Float[Tensor, "*batch n F"]:
    to_x, size = torch.empty_like(normal), normal.shape[-1]
    _backward[(triton.cdiv(spread.numel(), ROWS),)](
        gradient, normal, spread, to_x, spread.numel(),
        F=size, FP=tensor_core_size(size), ROWS=ROWS, num_warps=WARPS,
    )  # fmt: skip
    return to_x
