"""Shared by several GPU programs: sizes of tiles, precision of products, parts of long sums."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 2112
"""Programs that share a sum over the rows of all seeds: a multiple of an H200's 132 processors."""


def split_rows(rows: int, tile: int, stacked: int) -> tuple[int, int]:
    """Split a sum over rows: rows of each part (a multiple of the tile), and the number of parts.

    Enough parts to fill a GPU, each with enough rows to be worth storing its sum.

    Args:
        rows: to sum.
        tile: rows that a program takes at once.
        stacked: how many such sums there are: seeds, times blocks of columns.
    """
    parts = max(1, min(PROGRAMS // stacked, triton.cdiv(rows, 4 * tile)))
    share = triton.cdiv(triton.cdiv(rows, parts), tile) * tile
    return share, triton.cdiv(rows, share)


def power_of_2(size: int) -> int:
    return int(triton.next_power_of_2(size))


def tensor_core_size(size: int) -> int:
    """The next size that a product on tensor cores takes: a power of two, at least 16."""
    return max(16, power_of_2(size))


def precision(x: Tensor) -> str:
    """How products of this tensor are computed.

    float32 takes three TF32 products each, unless plain TF32 is allowed: it rounds as float32 does,
    at the speed of tensor cores.
    """
    if x.dtype == torch.bfloat16:
        return "bf16"
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"


def dot_precision(kind: str) -> str:
    """`input_precision` of `tl.dot`, which has nothing to choose for bf16."""
    return "ieee" if kind == "bf16" else kind


@triton.jit
def per_column(values, seed, C: tl.constexpr, CP: tl.constexpr):
    """One seed's numbers for each column or channel, as a row."""
    c = tl.arange(0, CP)
    return tl.load(values + seed * C + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
