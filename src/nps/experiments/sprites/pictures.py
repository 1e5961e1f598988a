"""Tracked sprites as pictures: true frames, what a model draws, and which slot it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from nps.experiments.balls.pictures import segment_picture
from nps.experiments.sprites.watching import Watched
from nps.inspect.animations import Scene, gif
from nps.inspect.grids import grid, to_bytes

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

MILLISECONDS = 300


def rows_of(images: UInt8[Tensor, "B T H W 3"], watched: Watched) -> UInt8[ndarray, "B 3 T H W 3"]:
    """True frames, those that are drawn once they are seen, and their segments; a background that
    is no slot is black."""
    drawn = to_bytes(watched.images.permute(0, 1, 3, 4, 2).cpu().numpy())
    background = watched.background
    slots = int(watched.segments.max()) + 1 if background is None else background
    return np.stack([images.cpu().numpy(), drawn, segment_picture(watched.segments, slots)], 1)


def tracking_picture(
    images: UInt8[Tensor, "B T H W 3"], watched: Watched
) -> UInt8[ndarray, "height width 3"]:
    """Three rows for each video, a column for each frame."""
    rows = rows_of(images, watched)
    return grid(rows.reshape(-1, *rows.shape[2:]))


def tracking_gif(images: UInt8[Tensor, "B T H W 3"], watched: Watched) -> bytes:
    """The first video as a moving picture; a slot keeps its colour."""
    true, drawn, segments = rows_of(images, watched)[0]
    titles = ("true", "drawn", "slots")
    return gif(
        [
            Scene([true[t], drawn[t], segments[t]], [None] * 3, f"frame {t}", MILLISECONDS, titles)
            for t in range(len(true))
        ]
    )
