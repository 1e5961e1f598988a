"""A step of Adam as one pass over the parameters (plain twin: kernels/adam.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

BLOCK = 1024


@triton.jit
def _adam(
    vector, gradient, mean, square, table, step, seed_of, factor, alive, count,
    KEEP_MEAN: tl.constexpr, KEEP_SQUARE: tl.constexpr, DECAYS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    seed = tl.load(seed_of + at, mask=at < count, other=0)
    moves = (at < count) & (tl.load(alive + seed) != 0)
    done = tl.load(step)
    rate, epsilon = tl.load(table + 3 * done), tl.load(table + 3 * done + 1)
    g = tl.load(gradient + at, mask=moves, other=0.0) * tl.load(factor + seed)
    m = tl.load(mean + at, mask=moves, other=0.0)
    v = tl.load(square + at, mask=moves, other=0.0)
    m += (g - m) * (1.0 - KEEP_MEAN)
    v = v * KEEP_SQUARE + g * g * (1.0 - KEEP_SQUARE)
    x = tl.load(vector + at, mask=moves, other=0.0)
    if DECAYS:
        x *= 1.0 - tl.load(table + 3 * done + 2)
    x -= rate * (m / (tl.sqrt(v) + epsilon))
    tl.store(vector + at, x, mask=moves)
    tl.store(mean + at, m, mask=moves)
    tl.store(square + at, v, mask=moves)


def adam(
    vector: Float[Tensor, "P"],
    gradient: Float[Tensor, "P"],
    mean: Float[Tensor, "P"],
    square: Float[Tensor, "P"],
    table: Float[Tensor, "steps 3"],
    step: Int[Tensor, "1"],
    seed_of: Int[Tensor, "P"],
    factor: Float[Tensor, "S"],
    alive: Bool[Tensor, "S"],
    decay: tuple[float, float, bool],
) -> None:
    """One step in place; the parameters of seeds that are not alive are not touched.

    `decay` is that of both moments, and whether the parameters decay (third column of the table).
    """
    count = vector.numel()
    _adam[(triton.cdiv(count, BLOCK),)](
        vector, gradient, mean, square, table, step, seed_of, factor, alive, count,
        *decay, BLOCK,
    )  # fmt: skip
