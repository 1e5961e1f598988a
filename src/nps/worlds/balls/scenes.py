"""Random scenes of bouncing balls: R-NEM's two kinds of balls, with four colours.

Half of the balls are heavy: 6 times the mass and 1.25 times the radius of the others. All start at
the same speed, in any direction, at places where none touches another. The original files hold
51 frames of 4, or of 6 to 8 balls; these scenes are simulated anew, from a seed. Colours are those
of the authors' program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.worlds.balls.dynamics import BOX, Bodies, simulate

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Float64, Int64

SPEED = 0.5
"""Way of a ball in the first frame, in the units of the box."""
LIGHT, HEAVY = (1.0, 1.0), (1.25, 6.0)
"""Radius and mass."""
PALETTE = ((228, 26, 28), (55, 126, 184), (77, 175, 74), (152, 78, 163))
COLOURS = len(PALETTE)
CURTAIN = 4.0
"""Side of the curtain: it hides a sixth of the box, and a ball for some ten frames."""
TRIES = 64
"""Places that are tried for a ball before all balls of the scene are placed anew."""


class Scenes(NamedTuple):
    """B scenes of T frames with at most M balls; everything that is true about them."""

    position: Float32[Tensor, "B T M 2"]
    """Column and row of the centres, from the upper left, 0 to `BOX`."""
    velocity: Float32[Tensor, "B T M 2"]
    radius: Float32[Tensor, "B M"]
    mass: Float32[Tensor, "B M"]
    present: Bool[Tensor, "B M"]
    """False for padding, where a scene has fewer balls than M."""
    colour: Int64[Tensor, "B M"]
    """Indices into `PALETTE`."""
    collided: Bool[Tensor, "B T M M"]
    """Which balls hit each other between the frame before and this one."""
    bounced: Bool[Tensor, "B T M"]
    """Which balls hit a wall in that time."""
    curtain: Float32[Tensor, "B 2"]
    """Upper left corner of a square that hides what is behind it; see `CURTAIN`."""

    def at(self, index: Tensor | slice) -> Scenes:
        """Some of the scenes."""
        return Scenes(*(part[index] for part in self))


def make_scenes(
    count: int,
    frames: int,
    seed: int,
    *,
    balls: tuple[int, int] = (4, 4),
    device: torch.device | str = "cpu",
) -> Scenes:
    """Scenes as a function of the seed, simulated on the device.

    The start is drawn on the CPU and is the same on every device. Collisions enlarge differences:
    after some fifty frames, two devices may round their way into different scenes.

    Args:
        count: B, the number of scenes.
        frames: T.
        seed: of the scenes.
        balls: fewest and most balls in a scene, each number as likely; M is the most.
        device: where to simulate, and where the scenes are.
    """
    low, high = balls
    draw = torch.Generator().manual_seed(seed)
    number = torch.randint(low, high + 1, (count, 1), generator=draw)
    present = torch.arange(high) < number
    heavy = torch.rand(count, high, generator=draw) < 0.5
    radius, mass = (torch.where(heavy, b, a).double() for a, b in zip(LIGHT, HEAVY, strict=True))
    angle = 2 * torch.pi * torch.rand(count, high, generator=draw, dtype=torch.float64)
    velocity = SPEED * torch.stack([angle.cos(), angle.sin()], -1) * present.unsqueeze(-1)
    colour = torch.randint(COLOURS, (count, high), generator=draw)
    curtain = (BOX - CURTAIN) * torch.rand(count, 2, generator=draw)
    position = place(radius, present, draw)
    start = Bodies(*(x.to(device) for x in (position, velocity, radius, mass, present)))
    seen = simulate(start, frames)
    return Scenes(
        torch.stack([frame.bodies.position for frame in seen], 1).float(),
        torch.stack([frame.bodies.velocity for frame in seen], 1).float(),
        start.radius.float(),
        start.mass.float(),
        start.present,
        colour.to(device),
        torch.stack([frame.collided for frame in seen], 1),
        torch.stack([frame.bounced for frame in seen], 1),
        curtain.to(device),
    )


def place(
    radius: Float64[Tensor, "B M"], present: Bool[Tensor, "B M"], draw: torch.Generator
) -> Float64[Tensor, "B M 2"]:
    """Places for the balls, in the box and apart from one another; zero for absent ones."""
    position = radius.new_zeros(*radius.shape, 2)
    waiting = torch.arange(len(radius))
    while len(waiting):
        found, complete = place_once(radius[waiting], present[waiting], draw)
        position[waiting] = found
        waiting = waiting[~complete]
    return position


def place_once(
    radius: Float64[Tensor, "B M"], present: Bool[Tensor, "B M"], draw: torch.Generator
) -> tuple[Float64[Tensor, "B M 2"], Bool[Tensor, "B"]]:
    """One ball after the other at the first free place of `TRIES`, and where that succeeded."""
    b, m = radius.shape
    position = radius.new_zeros(b, m, 2)
    complete = present.new_ones(b)
    for i in range(m):
        r = radius[:, i, None, None]
        tried = r + (BOX - 2 * r) * torch.rand(b, TRIES, 2, generator=draw, dtype=torch.float64)
        apart = torch.cdist(tried, position[:, :i]) > (r + radius[:, None, :i])
        free = (apart | ~present[:, None, :i]).all(-1)
        best = free.to(torch.uint8).argmax(1)  # the first free one
        chosen = tried[torch.arange(b), best]
        position[:, i] = torch.where(present[:, i, None], chosen, 0.0)
        complete &= free.any(1) | ~present[:, i]
    return position, complete
