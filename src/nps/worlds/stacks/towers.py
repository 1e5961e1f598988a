"""Random towers that are bound to fall (the generator of ShapeStacks, Groth et al. 2018).

A tower is built from the top down. Each shape below is put under the centre of mass of everything
above it, a little off; at one level, more than half of its width off: there the tower breaks. Half
of the towers are cubes of side 1, the others cuboids, cylinders and spheres.

Does not import torch, so that processes which simulate towers start quickly.
"""

from __future__ import annotations

from math import cos, pi, radians, sin
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float64, UInt8
    from numpy import ndarray

CUBOID, CYLINDER, SPHERE = range(3)
KINDS = ("cuboid", "cylinder", "sphere")
PALETTE = (
    *((210, 38, 38), (38, 160, 52), (44, 72, 205)),
    *((215, 190, 30), (30, 180, 190), (190, 44, 180)),
)
"""Red, green, blue, yellow, cyan, magenta; no two shapes of a tower have the same."""
SIDES = (0.5, 1.0)
"""Smallest and largest side or diameter of a shape."""
OFF = (0.2, 0.5)
"""Largest offset at the levels that hold, in half widths: of easy towers, and of hard ones."""
BEYOND = 0.05
"""How far out of reach the centre of mass is at the level that breaks."""
AROUND = 2.0
"""Towers stand within this distance of the middle of the floor, along each side."""


class Tower(NamedTuple):
    """M shapes, the lowest first."""

    kind: UInt8[ndarray, "M"]
    """Indices into `KINDS`."""
    size: Float64[ndarray, "M 3"]
    """Half of the extents in the shape's own frame; a cylinder's axis is the third."""
    position: Float64[ndarray, "M 3"]
    rotation: Float64[ndarray, "M 4"]
    """Unit quaternions, the real part first."""
    colour: UInt8[ndarray, "M"]
    """Indices into `PALETTE`."""
    breaks: int
    """The shape on which the rest of the tower does not hold, or -1."""


class Shape(NamedTuple):
    kind: int
    size: tuple[float, float, float]
    yaw: float
    lying: bool

    @property
    def half_height(self) -> float:
        return self.size[0] if self.lying else self.size[2]

    @property
    def mass(self) -> float:
        """Its volume: all shapes have the same density."""
        a, b, c = self.size
        return (8 * a * b * c, 2 * pi * a * b * c, 4 / 3 * pi * a * b * c)[self.kind]

    @property
    def rotation(self) -> tuple[float, float, float, float]:
        """A quarter turn about the first axis if it lies, then the yaw."""
        c, s = cos(self.yaw / 2), sin(self.yaw / 2)
        if not self.lying:
            return c, 0.0, 0.0, s
        half = 0.5**0.5
        return half * c, half * c, half * s, half * s


def draw_tower(draw: np.random.Generator, height: int = 3, *, falls: bool = True) -> Tower:
    """A random tower of `height` shapes; without a level that breaks, if it is not to fall."""
    cubes, hard = draw.random(2) < 0.5
    shapes = [draw_shape(draw, bool(cubes), top=i == height - 1) for i in range(height)]
    breaks = int(draw.integers(height - 1)) if falls else -1
    above, weight = np.zeros(2), 0.0
    places = np.zeros((height, 3))
    for i in reversed(range(height)):
        shape = shapes[i]
        away = np.zeros(2)
        if i < height - 1:
            away = broken(draw, shape) if i == breaks else holding(draw, shape, OFF[int(hard)])
        c, s = cos(shape.yaw), sin(shape.yaw)
        places[i, :2] = above - np.array([c * away[0] - s * away[1], s * away[0] + c * away[1]])
        above = (weight * above + shape.mass * places[i, :2]) / (weight + shape.mass)
        weight += shape.mass
    places[:, :2] += draw.uniform(-AROUND, AROUND, 2) - places[0, :2]
    floor = 0.0
    for i, shape in enumerate(shapes):
        places[i, 2] = floor + shape.half_height
        floor += 2 * shape.half_height
    return Tower(
        np.array([shape.kind for shape in shapes], np.uint8),
        np.array([shape.size for shape in shapes]),
        places,
        np.array([shape.rotation for shape in shapes]),
        draw.permutation(len(PALETTE))[:height].astype(np.uint8),
        breaks,
    )


def draw_shape(draw: np.random.Generator, cube: bool, *, top: bool) -> Shape:
    """Any shape on top; below, one with a flat top."""
    yaw = radians(float(draw.integers(360)))
    if cube:
        return Shape(CUBOID, (0.5, 0.5, 0.5), yaw, False)
    a, b, c = (float(x) / 2 for x in draw.uniform(*SIDES, 3))
    match int(draw.integers(4 if top else 2)):
        case 0:
            return Shape(CUBOID, (a, b, c), yaw, False)
        case 1:
            return Shape(CYLINDER, (a, a, c), 0.0, False)
        case 2:
            return Shape(CYLINDER, (a, a, c), yaw, True)
        case _:
            return Shape(SPHERE, (a, a, a), 0.0, False)


def reach(shape: Shape) -> Float64[ndarray, "2"]:
    """How far from its middle a shape counts as carrying what is above it. Of a cylinder it is half
    of the radius, as in the original program: a tower that breaks there may stand, and is then
    drawn again."""
    half = np.array(shape.size[:2])
    return half / 2 if shape.kind == CYLINDER else half


def holding(draw: np.random.Generator, shape: Shape, most: float) -> Float64[ndarray, "2"]:
    """Where on a shape the centre of mass above it lies, in the shape's frame."""
    while True:
        share = draw.uniform(-most, most, 2)
        if shape.kind == CUBOID or np.hypot(*share) < most:
            place: ndarray = share * reach(shape)
            return place


def broken(draw: np.random.Generator, shape: Shape) -> Float64[ndarray, "2"]:
    """The same, but out of reach: along one axis, the other, or both."""
    half = reach(shape)
    inside = draw.uniform(-half, half)
    beyond = np.where(draw.random(2) < 0.5, -1.0, 1.0) * (half + BEYOND)
    mode = int(draw.integers(3))
    return np.where([mode != 1, mode != 0], beyond, inside)
