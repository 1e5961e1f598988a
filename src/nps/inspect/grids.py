"""Pictures as plain arrays of bytes: images in rows and columns, without matplotlib.

Fast enough, and with few enough dependencies, to be drawn while a model trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped, UInt8
    from numpy import ndarray

WHITE, GREY = 255, 128
RED = (255, 0, 0)
LIGHTER, DARKER = np.array([213, 94, 0]), np.array([0, 114, 178])
"""Told apart by people with colour blindness."""
LEAST_SEEN = 4.0
"""Levels of 256 that a difference of images needs to be seen."""
BORDER = 2
"""Pixels around each image."""
CELL = 24
"""Height and width of a cell of a table, in pixels."""


def grid(
    images: UInt8[ndarray, "R C H W 3"],
    wrong: Bool[ndarray, "R C"] | None = None,
    background: int = WHITE,
) -> UInt8[ndarray, "height width 3"]:
    """R rows of C images, with a border around each: red around wrong ones."""
    rows, columns, height, width, channels = images.shape
    height, width = height + 2 * BORDER, width + 2 * BORDER
    cells = np.full((rows, columns, height, width, channels), background, np.uint8)
    if wrong is not None:
        cells[wrong] = RED
    cells[:, :, BORDER:-BORDER, BORDER:-BORDER] = images
    return cells.swapaxes(1, 2).reshape(rows * height, columns * width, channels)


def usage_picture(table: Sequence[Sequence[int]]) -> UInt8[ndarray, "height width 3"]:
    """A row for each operation, a cell for each rule: the darker, the more of its uses."""
    uses = np.asarray(table, float)
    share = uses / np.maximum(uses.sum(-1, keepdims=True), 1.0)
    cells = np.broadcast_to(1.0 - share[..., None, None], (*share.shape, CELL, CELL))
    return grid(grey(cells), background=GREY)


def difference(
    before: UInt8[ndarray, "H W 3"], after: UInt8[ndarray, "H W 3"]
) -> UInt8[ndarray, "H W 3"] | None:
    """What is lighter in the second image in orange and what is darker in blue, on white, as strong
    as the largest difference; None if the eye could not see it."""
    change = after.astype(np.float32).mean(-1) - before.astype(np.float32).mean(-1)
    most = float(np.abs(change).max())
    if most < LEAST_SEEN:
        return None
    colours = np.where(change[..., None] > 0, LIGHTER, DARKER)
    share = np.abs(change)[..., None] / most
    mixed: ndarray = np.rint(WHITE + share * (colours - WHITE))
    return mixed.astype(np.uint8)


def grey(levels: Float[ndarray, "*shape"]) -> UInt8[ndarray, "*shape 3"]:
    """Grey levels from 0 (black) to 1 (white) as colours."""
    return np.repeat(to_bytes(levels)[..., None], 3, -1)


def to_bytes(images: Shaped[ndarray, "*shape"]) -> UInt8[ndarray, "*shape"]:
    """Images of bytes as they are; floats from 0 to 1 as bytes."""
    if images.dtype == np.uint8:
        return images
    levels: ndarray = np.rint(255 * np.clip(images, 0.0, 1.0))
    return levels.astype(np.uint8)
