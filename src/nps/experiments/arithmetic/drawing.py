"""Points in the plane as pictures: the first a disc, the second a square, around the unit square.

Points outside of the picture are drawn at its edge.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8
    from numpy import ndarray

LOW, HIGH = -0.25, 1.25
"""Of both coordinates, at the edges of the picture."""
PIXELS = 120
PIXEL = (HIGH - LOW) / PIXELS
RADIUS = 0.05
"""Of a point."""
COLOURS = ((0, 114, 178), (213, 94, 0))
"""Okabe and Ito's blue and vermilion."""
OUTSIDE, INSIDE, EDGE = 232, 255, 160
"""Grey of the plane, of the unit square, and of its edge."""


def places(points: Float[ndarray, "*batch 2"]) -> Float[ndarray, "*batch 2"]:
    """Row and column of points (x, y), as shares of the picture's sides."""
    x, y = points[..., 0], points[..., 1]
    found: ndarray = np.stack([HIGH - y, x - LOW], -1) / (HIGH - LOW)
    return found


def draw(points: Float[ndarray, "2 2"]) -> UInt8[ndarray, "PIXELS PIXELS 3"]:
    """The plane with both points; y points upwards."""
    x, y, picture = plane()
    drawn = picture.copy()
    for number, (across, up) in enumerate(points.clip(LOW, HIGH)):
        dx, dy = np.abs(x - across), np.abs(y - up)
        away = np.maximum(dx, dy) if number else np.hypot(dx, dy)
        share = 0.5 + (RADIUS - away) / PIXEL
        inside = share > 0
        weight = share[inside].clip(max=1.0)[:, None]
        drawn[inside] = np.rint((1 - weight) * drawn[inside] + weight * np.array(COLOURS[number]))
    return drawn


@cache
def plane() -> tuple[ndarray, ndarray, UInt8[ndarray, "PIXELS PIXELS 3"]]:
    """The coordinates x (in a row) and y (in a column) of the pixels, and the picture without
    points."""
    x = LOW + PIXEL * (np.arange(PIXELS) + 0.5)
    y = x[::-1, None]
    far = np.maximum(np.abs(x - 0.5), np.abs(y - 0.5)) - 0.5
    grey = np.where(far < 0, INSIDE, OUTSIDE)
    grey[np.abs(far) < 0.75 * PIXEL] = EDGE
    return x, y, np.repeat(grey[..., None], 3, -1).astype(np.uint8)
