"""Images of the blocks: 50 x 50 pixels, 10 per cell, on black.

A shape has 11 x 11 pixels, as scikit-image draws a polygon with corners at 0 and 10: its last row
and column reach one pixel into the next cell, or are cut off at the border. Where two blocks
overlap, the later one is visible. Images are drawn on the state's device without host access: a
block's colour is scattered to the pixels of its shape, which are in a table.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.worlds.blocks.dynamics import GRID, State

if TYPE_CHECKING:
    from jaxtyping import Bool, Int64, UInt8

CELL = 10
PIXELS = GRID * CELL
FRAME = PIXELS + 1
"""An image with an extra row and column, which are cut off: for pixels beyond the border, and, in
the last pixel, for those that are not part of a shape."""
SHAPES = ("circle", "triangle", "square", "diamond", "cross", "pentagon")


def render(state: State) -> UInt8[Tensor, "*batch 50 50 3"]:
    """The image of each world, bytes, channels last."""
    row, column = state.positions.long().unbind(-1)
    corner = CELL * (FRAME * row + column)
    pixel = _pixels(corner.device)[state.shapes.long()] + corner[..., None]
    pixel = pixel.clamp(max=FRAME * FRAME - 1)[..., None].expand(*pixel.shape, 3)
    ink = state.colours[..., None, :].expand(pixel.shape)
    *batch, objects = corner.shape
    frame = state.colours.new_zeros(*batch, FRAME * FRAME, 3)
    for m in range(objects):  # in order: the later one is visible
        frame = frame.scatter(-2, pixel[..., m, :, :], ink[..., m, :, :])
    return frame.view(*batch, FRAME, FRAME, 3)[..., :PIXELS, :PIXELS, :]


def masks() -> Bool[Tensor, "S 11 11"]:
    """The pixels of each of `SHAPES`, with the cell's upper left at 0, 0."""
    row = torch.arange(CELL + 1)[:, None].expand(-1, CELL + 1)
    down, across = (row - 5).abs(), (row.T - 5).abs()  # distances from the middle
    return torch.stack(
        [
            down**2 + across**2 < 25,  # radius 5: nine pixels wide, inside the cell
            2 * across <= row,
            torch.ones_like(row, dtype=torch.bool),
            down + across <= 5,
            (down <= 1) | (across <= 1),
            (across <= row) & (5 * across <= 35 - 2 * row),  # top, shoulders, base of 7 pixels
        ]
    )


@cache
def _pixels(device: torch.device) -> Int64[Tensor, "S 121"]:
    """Pixel indices of each shape in the first cell; far outside for pixels not in the shape."""
    row = torch.arange(CELL + 1)[:, None]
    place = torch.where(masks(), FRAME * row + row.T, FRAME * FRAME)
    return place.flatten(1).to(device)
