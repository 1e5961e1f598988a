"""Frames in sheets of 64: of a long episode, the page asks only for those that it shows.

A sheet of frames is tiled row by row, 8 to a row; one of masks has a row for each frame and a
column for each slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nps.inspect.playback import Playback
from nps.inspect.workbench import require_index
from nps.viewer.png import png

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

PER_SHEET, PER_ROW = 64, 8
KINDS = ("true", "predicted", "masks")


def count(playback: Playback) -> int:
    """The number of sheets of each kind."""
    return -(-len(playback.true) // PER_SHEET)


def has(playback: Playback, kind: str) -> bool:
    """Whether there are pictures of a kind."""
    return getattr(playback, kind) is not None


def sheet(playback: Playback, kind: str, number: int) -> bytes:
    """A sheet as a PNG; `kind` is one of `KINDS` that the playback has."""
    first = PER_SHEET * require_index("sheet", number, count(playback))
    frames = getattr(playback, kind)[first : first + PER_SHEET]
    return png(_masks(frames) if kind == "masks" else _tiled(frames))


def _tiled(frames: UInt8[ndarray, "n H W 3"]) -> UInt8[ndarray, "rows*H 8*W 3"]:
    n, height, width, colours = frames.shape
    rows = -(-n // PER_ROW)
    whole = np.zeros((rows * PER_ROW, height, width, colours), np.uint8)
    whole[:n] = frames
    grid = whole.reshape(rows, PER_ROW, height, width, colours).swapaxes(1, 2)
    return grid.reshape(rows * height, PER_ROW * width, colours)


def _masks(frames: UInt8[ndarray, "n M h w"]) -> UInt8[ndarray, "n*h M*w"]:
    n, slots, height, width = frames.shape
    return frames.swapaxes(1, 2).reshape(n * height, slots * width)
