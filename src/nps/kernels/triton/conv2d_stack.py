"""Convolution (nps/kernels/conv2d_stack.py) of S seeds at once, in Triton.

The seed is a dimension of the grid. Images are (S, B, H, W, C). The border is replicated while
reading, and a convolution that also enlarges (enlarge.py) writes its pixel pairs where they belong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from nps.kernels.triton.common import dot_precision, precision, tensor_core_size

if TYPE_CHECKING:
    from jaxtyping import Float

    from nps.kernels.conv2d_stack import Geometry


@triton.jit
def _forward(
    image, weight, bias, output, batch,
    H: tl.constexpr, C: tl.constexpr, K: tl.constexpr, STRIDE: tl.constexpr, BEFORE: tl.constexpr,
    T: tl.constexpr, UP: tl.constexpr, SIZE: tl.constexpr, OUT: tl.constexpr,
    ROWS: tl.constexpr, TAPS: tl.constexpr, N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    seed = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < batch * T * T
    b, t, u = row // (T * T), row // T % T, row % T
    n = tl.arange(0, N)
    image += seed.to(tl.int64) * batch * H * H * C
    weight += seed * (K * K * C * UP * UP * OUT)
    total = tl.zeros((ROWS, N), tl.float32)
    for k in range(0, K * K * C, TAPS):
        tap = k + tl.arange(0, TAPS)
        i, j, c = tap // C // K, tap // C % K, tap % C
        y = t[:, None] * STRIDE + i[None, :] - BEFORE
        x = u[:, None] * STRIDE + j[None, :] - BEFORE
        y = tl.minimum(tl.maximum(y, 0), H - 1)
        x = tl.minimum(tl.maximum(x, 0), H - 1)
        mask = inside[:, None] & (tap < K * K * C)[None, :]
        a = tl.load(image + ((b[:, None] * H + y) * H + x) * C + c[None, :], mask=mask, other=0.0)
        w = tl.load(
            weight + tap[:, None] * (UP * UP * OUT) + n[None, :],
            mask=(tap < K * K * C)[:, None] & (n < UP * UP * OUT)[None, :],
            other=0.0,
        )
        total += tl.dot(a, w, input_precision=PRECISION)
    p, q, o = n // OUT // UP, n // OUT % UP, n % OUT
    total += tl.load(bias + seed * OUT + o, mask=n < UP * UP * OUT, other=0.0).to(tl.float32)[
        None, :
    ]
    y, x = t[:, None] * UP + p[None, :], u[:, None] * UP + q[None, :]
    mask = inside[:, None] & (n < UP * UP * OUT)[None, :] & (y < SIZE) & (x < SIZE)
    place = ((b[:, None] * SIZE + y) * SIZE + x) * OUT + o[None, :]
    output += seed.to(tl.int64) * batch * SIZE * SIZE * OUT
    tl.store(output + place, total.to(output.dtype.element_ty), mask=mask)


@triton.jit
def _to_image(
    gradient, weight, to_image, batch,
    C: tl.constexpr, K: tl.constexpr, STRIDE: tl.constexpr, T: tl.constexpr, P: tl.constexpr,
    UP: tl.constexpr, SIZE: tl.constexpr, OUT: tl.constexpr,
    ROWS: tl.constexpr, N: tl.constexpr, CHANNELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of the padded image, side P.

    A program takes pixels of equal remainder modulo the stride: the same places of a window reach
    them.
    """
    seed = tl.program_id(1)
    odd_y, odd_x = tl.program_id(2) // STRIDE, tl.program_id(2) % STRIDE
    HALF: tl.constexpr = (P + STRIDE - 1) // STRIDE
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    b, half_y, half_x = row // (HALF * HALF), row // HALF % HALF, row % HALF
    y, x = half_y * STRIDE + odd_y, half_x * STRIDE + odd_x
    inside = (row < batch * HALF * HALF) & (y < P) & (x < P)
    n = tl.arange(0, N)
    p, q, o = n // OUT // UP, n // OUT % UP, n % OUT
    c = tl.arange(0, CHANNELS)
    gradient += seed.to(tl.int64) * batch * SIZE * SIZE * OUT
    weight += seed * (K * K * C * UP * UP * OUT)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    PLACES: tl.constexpr = K // STRIDE
    for place in range(PLACES * PLACES):
        down, right = place // PLACES, place % PLACES
        i, j = odd_y + down * STRIDE, odd_x + right * STRIDE
        t, u = half_y - down, half_x - right
        window = inside & (t >= 0) & (t < T) & (u >= 0) & (u < T)
        gy, gx = t[:, None] * UP + p[None, :], u[:, None] * UP + q[None, :]
        mask = window[:, None] & (n < UP * UP * OUT)[None, :] & (gy < SIZE) & (gx < SIZE)
        at = ((b[:, None] * SIZE + gy) * SIZE + gx) * OUT + o[None, :]
        g = tl.load(gradient + at, mask=mask, other=0.0)
        w = tl.load(
            weight + ((i * K + j) * C + c[None, :]) * (UP * UP * OUT) + n[:, None],
            mask=(n < UP * UP * OUT)[:, None] & (c < C)[None, :],
            other=0.0,
        )
        total += tl.dot(g, w, input_precision=PRECISION)
    to_image += seed.to(tl.int64) * batch * P * P * C
    at = ((b[:, None] * P + y[:, None]) * P + x[:, None]) * C + c[None, :]
    mask = inside[:, None] & (c < C)[None, :]
    tl.store(to_image + at, total.to(to_image.dtype.element_ty), mask=mask)


@triton.jit
def _fold(
    padded, image, count,
    H: tl.constexpr, C: tl.constexpr, P: tl.constexpr, BEFORE: tl.constexpr,
    FAR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the image from that of the padded one: the border adds up its copies'."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c, x, y, b = at % C, at // C % H, at // C // H % H, at // C // H // H
    total = tl.zeros((BLOCK,), tl.float32)
    for place in range((2 * FAR + 1) * (2 * FAR + 1)):
        down, right = place // (2 * FAR + 1) - FAR, place % (2 * FAR + 1) - FAR
        # Pixel y of the padded image is a copy of the pixel nearest to it.
        py, px = y + down, x + right
        mine = (tl.minimum(tl.maximum(py, 0), H - 1) == y) & (
            tl.minimum(tl.maximum(px, 0), H - 1) == x
        )
        py, px = py + BEFORE, px + BEFORE
        mask = mine & (at < count) & (py >= 0) & (py < P) & (px >= 0) & (px < P)
        value = tl.load(padded + ((b * P + py) * P + px) * C + c, mask=mask, other=0.0)
        total += value.to(tl.float32)
    tl.store(image + at, total.to(image.dtype.element_ty), mask=at < count)


@triton.jit
def _to_weight(
    image, gradient, to_weight, to_bias, batch, share,
    H: tl.constexpr, C: tl.constexpr, K: tl.constexpr, STRIDE: tl.constexpr, BEFORE: tl.constexpr,
    T: tl.constexpr, UP: tl.constexpr, SIZE: tl.constexpr, OUT: tl.constexpr,
    ROWS: tl.constexpr, TAPS: tl.constexpr, N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of weight and bias, summed over a share of the windows."""
    part, k, seed = tl.program_id(0), tl.program_id(1) * TAPS, tl.program_id(2)
    parts = tl.num_programs(0)
    tap = k + tl.arange(0, TAPS)
    i, j, c = tap // C // K, tap // C % K, tap % C
    n = tl.arange(0, N)
    p, q, o = n // OUT // UP, n // OUT % UP, n % OUT
    image += seed.to(tl.int64) * batch * H * H * C
    gradient += seed.to(tl.int64) * batch * SIZE * SIZE * OUT
    total = tl.zeros((TAPS, N), tl.float32)
    sums = tl.zeros((N,), tl.float32)
    for start in range(part * share, (part + 1) * share, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = row < batch * T * T
        b, t, u = row // (T * T), row // T % T, row % T
        y = t[:, None] * STRIDE + i[None, :] - BEFORE
        x = u[:, None] * STRIDE + j[None, :] - BEFORE
        y = tl.minimum(tl.maximum(y, 0), H - 1)
        x = tl.minimum(tl.maximum(x, 0), H - 1)
        mask = inside[:, None] & (tap < K * K * C)[None, :]
        a = tl.load(image + ((b[:, None] * H + y) * H + x) * C + c[None, :], mask=mask, other=0.0)
        gy, gx = t[:, None] * UP + p[None, :], u[:, None] * UP + q[None, :]
        mask = inside[:, None] & (n < UP * UP * OUT)[None, :] & (gy < SIZE) & (gx < SIZE)
        at = ((b[:, None] * SIZE + gy) * SIZE + gx) * OUT + o[None, :]
        g = tl.load(gradient + at, mask=mask, other=0.0)
        total += tl.dot(tl.trans(a), g, input_precision=PRECISION)
        sums += tl.sum(g.to(tl.float32), 0)
    cell = seed * parts + part
    to_weight += cell * (K * K * C * UP * UP * OUT)
    at = tap[:, None] * (UP * UP * OUT) + n[None, :]
    tl.store(to_weight + at, total, mask=(tap < K * K * C)[:, None] & (n < UP * UP * OUT)[None, :])
    if k == 0:
        tl.store(to_bias + cell * (UP * UP * OUT) + n, sums, mask=n < UP * UP * OUT)


class Tile(NamedTuple):
    """The work of a program at a time."""

    rows: int
    """Windows, or pixels."""
    warps: int
    stages: int


# Measured on an H200 with the layers of a digit's encoder and decoder, 10 seeds of 50 images.
SMALL = Tile(64, 4, 3)
FORWARD = {"bf16": SMALL, "tf32": Tile(64, 2, 3), "tf32x3": SMALL}
TO_IMAGE = {"bf16": SMALL, "tf32": SMALL, "tf32x3": SMALL}
TO_WEIGHT = {"bf16": SMALL, "tf32": Tile(64, 4, 2), "tf32x3": SMALL}
TAPS = {"bf16": 128, "tf32": 128, "tf32x3": 64}
"""Most places × channels that a program of `_to_weight` takes."""


def forward(
    image: Float[Tensor, "S B H H C"],
    weight: Float[Tensor, "S taps up*up*out"],
    bias: Float[Tensor, "S out"],
    g: Geometry,
) -> Float[Tensor, "S B size size out"]:
    seeds, batch = image.shape[:2]
    kind = precision(image)
    tile = FORWARD[kind]
    output = image.new_empty(seeds, batch, g.size, g.size, g.out)
    grid = (triton.cdiv(batch * g.windows**2, tile.rows), seeds)
    _forward[grid](
        image, weight, bias, output, batch,
        g.height, g.channels, g.kernel, g.stride, g.before, g.windows, g.up, g.size, g.out,
        ROWS=tile.rows, TAPS=_taps(g), N=_columns(g), PRECISION=dot_precision(kind),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return output


def to_image(
    gradient: Float[Tensor, "S B size size out"],
    weight: Float[Tensor, "S taps up*up*out"],
    g: Geometry,
) -> Float[Tensor, "S B H H C"]:
    seeds, batch = gradient.shape[:2]
    kind = precision(gradient)
    tile = TO_IMAGE[kind]
    padded = gradient.new_empty(seeds, batch, g.padded, g.padded, g.channels)
    half = triton.cdiv(g.padded, g.stride)
    grid = (triton.cdiv(batch * half**2, tile.rows), seeds, g.stride**2)
    _to_image[grid](
        gradient, weight, padded, batch,
        g.channels, g.kernel, g.stride, g.windows, g.padded, g.up, g.size, g.out,
        ROWS=tile.rows, N=_columns(g), CHANNELS=tensor_core_size(g.channels),
        PRECISION=dot_precision(kind), num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    if g.before == 0 and g.padded == g.height:
        return padded
    image = gradient.new_empty(seeds, batch, g.height, g.height, g.channels)
    far = max(g.before, g.padded - g.before - g.height, 0)
    _fold[(triton.cdiv(image.numel(), 1024),)](
        padded, image, image.numel(),
        g.height, g.channels, g.padded, g.before, FAR=far, BLOCK=1024,
    )  # fmt: skip
    return image


def to_weight(
    image: Float[Tensor, "S B H H C"], gradient: Float[Tensor, "S B size size out"], g: Geometry
) -> tuple[Float[Tensor, "S taps up*up*out"], Float[Tensor, "S out"]]:
    seeds, batch = image.shape[:2]
    kind = precision(image)
    tile = TO_WEIGHT[kind]
    rows, taps, columns = tile.rows, g.kernel**2 * g.channels, g.up**2 * g.out
    at_once = min(TAPS[kind], tensor_core_size(taps))
    blocks = triton.cdiv(taps, at_once)
    windows = batch * g.windows**2
    # Enough programs to fill a GPU, each with enough rows to be worth storing its sum.
    parts = max(1, min(triton.cdiv(1024, blocks * seeds), triton.cdiv(windows, 4 * rows)))
    share = triton.cdiv(triton.cdiv(windows, parts), rows) * rows
    weight = image.new_empty(seeds, parts, taps, columns, dtype=torch.float32)
    bias = image.new_empty(seeds, parts, columns, dtype=torch.float32)
    _to_weight[(parts, blocks, seeds)](
        image, gradient, weight, bias, batch, share,
        g.height, g.channels, g.kernel, g.stride, g.before, g.windows, g.up, g.size, g.out,
        ROWS=rows, TAPS=at_once, N=_columns(g), PRECISION=dot_precision(kind),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return weight.sum(1), bias.sum(1).unflatten(1, (-1, g.out)).sum(1)


def _taps(g: Geometry) -> int:
    """Terms of the sum at a time: a power of two that tensor cores take."""
    return min(64, g.channels) if g.channels >= 16 else 16


def _columns(g: Geometry) -> int:
    return tensor_core_size(g.up**2 * g.out)
