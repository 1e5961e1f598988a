"""Shrink images with the Lanczos filter, which is what "antialias" meant in C-SWM's version of PIL.

In fixed point, as in PIL: weights with 22 fractional bits, rows first, rounded to bytes after each
direction. So an image gives the same bytes on every machine.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float64, UInt8
    from numpy import ndarray

LOBES = 3
ONE = 2.0**22


def shrink(
    pictures: UInt8[ndarray, "*B H W C"], height: int, width: int
) -> UInt8[ndarray, "*B C height width"]:
    """Shrink images as they come from an emulator; the result has its channels first."""
    planes = np.moveaxis(pictures, -1, -3).astype(np.float64)
    narrow = _rounded(planes @ _weights(planes.shape[-1], width).T)
    return _rounded(_weights(planes.shape[-2], height) @ narrow).astype(np.uint8)


def _rounded(sums: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    return np.clip(np.floor(sums / ONE + 0.5), 0, 255)


@cache
def _weights(before: int, after: int) -> Float64[ndarray, "after before"]:
    """Weight of each old pixel in each new one, in units of 1 / ONE.

    Integers as floats: below 2^53 their products and sums are exact in any order.
    """
    scale = before / after
    centre = (np.arange(after)[:, None] + 0.5) * scale
    away = (np.arange(before) + 0.5 - centre) / scale
    window = np.where(abs(away) < LOBES, np.sinc(away) * np.sinc(away / LOBES), 0.0)
    weights: Float64[ndarray, "after before"] = window / window.sum(axis=1, keepdims=True)
    return np.rint(weights * ONE)
