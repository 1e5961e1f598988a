"""Normalisation, activation and convolution (nps/kernels/readout.py) of S seeds at once, in Triton.

A row is a window of the convolution, a tap one of its K · K · C numbers. Three kernels go over all
of x, P bytes: `_forward` (P), `_sums` (P) and `_to_x` (2 P); moments.py finds the statistics
(P). Products take numbers in x's type and accumulate in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from nps.kernels.triton.common import dot_precision, precision, split_rows, tensor_core_size
from nps.kernels.triton.moments import moments

if TYPE_CHECKING:
    from jaxtyping import Float

    from nps.kernels.readout import Settings


@triton.jit
def _windows(first, K: tl.constexpr, W: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr):
    """The windows from `first` on, and the offset of the first number of each.

    A batch of images is simply a column of lines of W pixels, K of them to a line of windows.
    """
    row = first + tl.arange(0, ROWS)
    return row, (row // (W // K) * W + row % (W // K)) * (K * C)


@triton.jit
def _taps(first, K: tl.constexpr, W: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr):
    """The taps from `first` on, and the offset of each from the first number of its window."""
    tap = first + tl.arange(0, TAPS)
    return tap, tap // (K * C) * (W * C) + tap % (K * C)


@triton.jit
def _per_tap(values, seed, C: tl.constexpr, TAPS: tl.constexpr):
    """A parameter of the channels for each tap; the first tap is of the first channel."""
    return tl.load(values + seed * C + tl.arange(0, TAPS) % C).to(tl.float32)[None, :]


@triton.jit
def _lines(
    scale, shift, mean, variance, seed,
    EPSILON: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """Factor and offset of each tap: of the normalisation alone, and with scale and shift.

    Numbers far from zero round more than if their mean were subtracted first, but far less than
    bf16 has rounded them before.
    """
    inverse = tl.rsqrt(_per_tap(variance, seed, C, TAPS) + EPSILON)
    centre = -_per_tap(mean, seed, C, TAPS) * inverse
    a = _per_tap(scale, seed, C, TAPS)
    return inverse, centre, a * inverse, a * centre + _per_tap(shift, seed, C, TAPS)


@triton.jit
def _forward(
    x, scale, shift, mean, variance, taps, bias, output, rows,
    SLOPE: tl.constexpr, EPSILON: tl.constexpr,
    K: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OUT: tl.constexpr, N: tl.constexpr,
    ROWS: tl.constexpr, TAPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    seed, n = tl.program_id(1), tl.arange(0, N)
    _, _, factor, offset = _lines(scale, shift, mean, variance, seed, EPSILON, C, TAPS)
    x += seed.to(tl.int64) * rows * (K * K * C)
    taps += seed * (K * K * C * N)
    row, begin = _windows(tl.program_id(0) * ROWS, K, W, C, ROWS)
    inside = (row < rows)[:, None]
    total = tl.zeros((ROWS, N), tl.float32)
    for first in range(0, K * K * C, TAPS):
        tap, within = _taps(first, K, W, C, TAPS)
        mask = inside & (tap < K * K * C)[None, :]
        value = tl.load(x + begin[:, None] + within[None, :], mask=mask, other=0.0)
        z = value.to(tl.float32) * factor + offset
        y = tl.where(z > 0, z, z * SLOPE).to(value.dtype)
        at = tap[:, None] * N + n[None, :]
        w = tl.load(taps + at, mask=(tap < K * K * C)[:, None], other=0.0)
        total += tl.dot(y, w, input_precision=PRECISION)
    total += tl.load(bias + seed * OUT + n, mask=n < OUT, other=0.0).to(tl.float32)[None, :]
    output += seed.to(tl.int64) * rows * OUT
    mask = inside & (n < OUT)[None, :]
    at = row[:, None] * OUT + n[None, :]
    tl.store(output + at, total.to(output.dtype.element_ty), mask=mask)


@triton.jit
def _sums(
    gradient, x, scale, shift, mean, variance, sums, rows, share,
    SLOPE: tl.constexpr, EPSILON: tl.constexpr,
    K: tl.constexpr, W: tl.constexpr, C: tl.constexpr, N: tl.constexpr,
    ROWS: tl.constexpr, TAPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sums of `_small_sums` over a share of the rows."""
    part, seed, n = tl.program_id(1), tl.program_id(2), tl.arange(0, N)
    lines = _lines(scale, shift, mean, variance, seed, EPSILON, C, TAPS)
    inverse, centre, factor, offset = lines
    x += seed.to(tl.int64) * rows * (K * K * C)
    gradient += seed.to(tl.int64) * rows * N
    tap, within = _taps(tl.program_id(0) * TAPS, K, W, C, TAPS)
    units = tl.zeros((TAPS, N), tl.float32)
    aboves = tl.zeros((TAPS, N), tl.float32)
    for first in range(part * share, (part + 1) * share, ROWS):
        row, begin = _windows(first, K, W, C, ROWS)
        inside = (row < rows)[:, None]
        mask = inside & (tap < K * K * C)[None, :]
        value = tl.load(x + begin[:, None] + within[None, :], mask=mask, other=0.0)
        g = tl.load(gradient + row[:, None] * N + n[None, :], mask=inside, other=0.0)
        wide = value.to(tl.float32)
        positive = wide * factor + offset > 0
        unit = wide * inverse + centre
        unit = tl.where(positive, unit, unit * SLOPE).to(value.dtype)
        above = tl.where(positive, 1.0, 0.0).to(value.dtype)
        units += tl.dot(tl.trans(unit), g, input_precision=PRECISION)
        aboves += tl.dot(tl.trans(above), g, input_precision=PRECISION)
    sums += (seed * tl.num_programs(1) + part).to(tl.int64) * (2 * K * K * C * N)
    at, mask = tap[:, None] * N + n[None, :], (tap < K * K * C)[:, None]
    tl.store(sums + at, units, mask=mask)
    tl.store(sums + K * K * C * N + at, aboves, mask=mask)


@triton.jit
def _to_x(
    gradient, x, scale, shift, mean, variance, taps, to_scale, to_shift, to_x, rows,
    SLOPE: tl.constexpr, EPSILON: tl.constexpr,
    K: tl.constexpr, W: tl.constexpr, C: tl.constexpr, N: tl.constexpr,
    ROWS: tl.constexpr, TAPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    seed, n = tl.program_id(1), tl.arange(0, N)
    lines = _lines(scale, shift, mean, variance, seed, EPSILON, C, TAPS)
    inverse, centre, factor, offset = lines
    # The gradient through the statistics is linear in x as well.
    of_scale = _per_tap(to_scale, seed, C, TAPS) / (rows * (K * K))
    of_shift = _per_tap(to_shift, seed, C, TAPS) / (rows * (K * K))
    through, constant = of_scale * inverse * factor, (of_scale * centre + of_shift) * factor
    x += seed.to(tl.int64) * rows * (K * K * C)
    to_x += seed.to(tl.int64) * rows * (K * K * C)
    gradient += seed.to(tl.int64) * rows * N
    taps += seed * (K * K * C * N)
    row, begin = _windows(tl.program_id(0) * ROWS, K, W, C, ROWS)
    inside = (row < rows)[:, None]
    g = tl.load(gradient + row[:, None] * N + n[None, :], mask=inside, other=0.0)
    for first in range(0, K * K * C, TAPS):
        tap, within = _taps(first, K, W, C, TAPS)
        mask = inside & (tap < K * K * C)[None, :]
        at = begin[:, None] + within[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        of_tap = tap[None, :] * N + n[:, None]
        w = tl.load(taps + of_tap, mask=(tap < K * K * C)[None, :], other=0.0)
        back = tl.dot(g, w, input_precision=PRECISION)
        back = tl.where(value * factor + offset > 0, back, back * SLOPE)
        back = back * factor - (value * through + constant)
        tl.store(to_x + at, back.to(to_x.dtype.element_ty), mask=mask)


class Tile(NamedTuple):
    """The work of a program at a time."""

    rows: int
    taps: int
    """At least this many, and never less than the channels."""
    warps: int
    stages: int


FORWARD = Tile(64, 64, 4, 3)
SUMS = Tile(64, 64, 4, 2)
TO_X = Tile(32, 64, 4, 2)


def forward(
    x: Float[Tensor, "S B H H C"],
    scale: Float[Tensor, "S C"],
    shift: Float[Tensor, "S C"],
    taps: Float[Tensor, "S K*K*C out"],
    bias: Float[Tensor, "S out"],
    *,
    settings: Settings,
) -> tuple[Float[Tensor, "S B H/K H/K out"], Float[Tensor, "S C"], Float[Tensor, "S C"]]:
    x = x.contiguous()
    seeds, batch, height, width, _ = x.shape
    mean, variance = moments(x)
    output = x.new_empty(
        seeds, batch, height // settings.kernel, width // settings.kernel, bias.shape[-1]
    )
    rows, sizes = output.shape[1:4].numel(), _sizes(x, taps, settings, FORWARD)
    _forward[(triton.cdiv(rows, FORWARD.rows), seeds)](
        x, scale.contiguous(), shift.contiguous(), mean, variance,
        _padded(taps.to(x.dtype)), bias.contiguous(), output, rows, OUT=bias.shape[-1], **sizes,
    )  # fmt: skip
    return output, mean, variance


def backward(
    gradient: Float[Tensor, "S B H/K H/K out"],
    x: Float[Tensor, "S B H H C"],
    scale: Float[Tensor, "S C"],
    shift: Float[Tensor, "S C"],
    taps: Float[Tensor, "S K*K*C out"],
    bias: Float[Tensor, "S out"],
    mean: Float[Tensor, "S C"],
    variance: Float[Tensor, "S C"],
    *,
    settings: Settings,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, scale, shift, taps and bias.

    Let u be a number after the normalisation, m the slope of the activation there (1 or `slope`)
    and G the gradients of its window's outputs. Two small matrices, with a row for each tap and a
    column for each output, hold all sums over rows: A = Σ m·u·G and B = Σ m·G. As
    y = m·(scale·u + shift), the gradient of the taps is scale·A + shift·B. The gradient before the
    activation is m·Σ tap·G over outputs, so that of the scale is Σ tap·A and that of the shift
    Σ tap·B, over outputs and places of the window.
    """
    inputs = [v.contiguous() for v in (x, scale, shift, mean, variance)]
    # Rows of 16 numbers are loaded as a whole; rows of 5 would be gathered one by one.
    g, weight = _padded(gradient.flatten(1, 3)), _padded(taps.to(x.dtype))
    to_bias = g.sum(1, dtype=torch.float32)
    a, b = _small_sums(g, inputs, settings, taps)
    b = settings.slope * to_bias[:, None] + (1 - settings.slope) * b
    shape = (len(x), -1, x.shape[-1], g.shape[-1])
    to_scale, to_shift = ((v * weight).view(shape).sum((1, 3)) for v in (a, b))
    places = settings.kernel**2
    to_taps = a * scale.repeat(1, places)[..., None] + b * shift.repeat(1, places)[..., None]
    to_x, sizes = torch.empty_like(inputs[0]), _sizes(x, taps, settings, TO_X)
    grid = (triton.cdiv(g.shape[1], TO_X.rows), len(x))
    _to_x[grid](g, *inputs, weight, to_scale, to_shift, to_x, g.shape[1], **sizes)
    out = taps.shape[-1]
    return to_x, to_scale, to_shift, to_taps[..., :out], to_bias[:, :out]


def _small_sums(
    g: Float[Tensor, "S rows N"], inputs: list[Tensor], settings: Settings, taps: Tensor
) -> tuple[Float[Tensor, "S K*K*C N"], Float[Tensor, "S K*K*C N"]]:
    """A = Σ m·u·G, and instead of B the sum of G where m = 1: ones and zeros are exact in bf16."""
    (seeds, rows, columns), x, count = g.shape, inputs[0], taps.shape[1]
    sizes = _sizes(x, taps, settings, SUMS)
    blocks = triton.cdiv(count, sizes["TAPS"])
    share, parts = split_rows(rows, SUMS.rows, blocks * seeds)
    sums = x.new_empty(seeds, parts, 2, count, columns, dtype=torch.float32)
    _sums[(blocks, parts, seeds)](g, *inputs, sums, rows, share, **sizes)
    a, b = sums.sum(1).unbind(1)
    return a, b


def _sizes(x: Tensor, taps: Tensor, settings: Settings, tile: Tile) -> dict[str, Any]:
    width, channels = x.shape[-2:]
    return {
        "SLOPE": settings.slope, "EPSILON": settings.epsilon,
        "K": settings.kernel, "W": width, "C": channels, "N": tensor_core_size(taps.shape[-1]),
        "ROWS": tile.rows, "TAPS": max(tile.taps, channels),
        "PRECISION": dot_precision(precision(x)),
        "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip


def _padded(values: Float[Tensor, "S rows out"]) -> Float[Tensor, "S rows N"]:
    columns = values.shape[-1]
    return F.pad(values, (0, tensor_core_size(columns) - columns)).contiguous()
