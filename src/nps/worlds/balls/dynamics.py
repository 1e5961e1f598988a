"""The physics of bouncing balls, for any number of boxes at once.

The simulation is event-driven: a box advances to its next impact, between two balls or of a ball on
a wall, that impact is resolved exactly, and so on until the frame is over. R-NEM takes two Euler
steps a frame instead, in which balls overlap before they notice each other. Here none overlaps or
leaves the box, every impact keeps the energy, and one between balls their momentum, up to rounding;
so everything is in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float64

BOX = 10.0
"""Side of the box (R-NEM)."""


class Bodies(NamedTuple):
    """M balls in each of B boxes, at one moment."""

    position: Float64[Tensor, "B M 2"]
    """Column and row of the centres, from the upper left, 0 to `BOX`."""
    velocity: Float64[Tensor, "B M 2"]
    """Way of a frame."""
    radius: Float64[Tensor, "B M"]
    mass: Float64[Tensor, "B M"]
    present: Bool[Tensor, "B M"]
    """False for padding, where a box has fewer balls."""


class Frame(NamedTuple):
    """The end of a frame, and the impacts since the last one."""

    bodies: Bodies
    collided: Bool[Tensor, "B M M"]
    """Which balls hit each other."""
    bounced: Bool[Tensor, "B M"]
    """Which balls hit a wall."""


def simulate(start: Bodies, frames: int) -> list[Frame]:
    """Frames 0, the start, to `frames` - 1."""
    *_, m, _ = start.position.shape
    no_pair = start.present.new_zeros(*start.present.shape, m)
    seen = [Frame(start, no_pair, torch.zeros_like(start.present))]
    while len(seen) < frames:
        seen.append(advance(seen[-1].bodies))
    return seen


def advance(bodies: Bodies) -> Frame:
    """One frame, through all its impacts."""
    b, m = bodies.present.shape
    left = bodies.position.new_ones(b)
    collided = bodies.present.new_zeros(b, m, m)
    bounced = bodies.present.new_zeros(b, m)
    while bool((left > 0).any()):
        to_pair, to_wall = times_to_pairs(bodies), times_to_walls(bodies)
        first = torch.minimum(to_pair.flatten(1).amin(1), to_wall.flatten(1).amin(1))
        step = torch.minimum(first, left)
        bodies = bodies._replace(position=bodies.position + bodies.velocity * step[:, None, None])
        left = left - step
        # What is due at the same moment is resolved together, unless balls share in two impacts:
        # the second of those comes next, after no time.
        due = (first <= step)[:, None]
        wall = (to_wall <= step[:, None, None]) & due[..., None]
        pair = one_pair((to_pair <= step[:, None, None]) & due[..., None])
        pair &= ~wall.any(-1).any(-1)[:, None, None]
        bodies = reflect(collide(bodies, pair), wall)
        collided |= pair | pair.mT
        bounced |= wall.any(-1)
    return Frame(bodies, collided, bounced)


def times_to_pairs(bodies: Bodies) -> Float64[Tensor, "B M M"]:
    """Until balls i < j touch; infinite if they never do. Touching balls that part never do."""
    x = bodies.position.unsqueeze(1) - bodies.position.unsqueeze(2)
    v = bodies.velocity.unsqueeze(1) - bodies.velocity.unsqueeze(2)
    reach = bodies.radius.unsqueeze(1) + bodies.radius.unsqueeze(2)
    # |x + v t| = reach, the smaller root of a t² + 2 b t + c, written so that nothing cancels
    a, b, c = v.square().sum(-1), (x * v).sum(-1), x.square().sum(-1) - reach.square()
    discriminant = b.square() - a * c
    hits = (b < 0) & (discriminant > 0)
    hits &= bodies.present.unsqueeze(1) & bodies.present.unsqueeze(2)
    hits &= torch.ones_like(hits).triu(1)
    root = torch.where(hits, discriminant, 0.0).sqrt()
    time = (c / torch.where(hits, root - b, 1.0)).clamp(min=0.0)
    return torch.where(hits, time, torch.inf)


def times_to_walls(bodies: Bodies) -> Float64[Tensor, "B M 2"]:
    """Until each ball touches a vertical and a horizontal wall; infinite if it never does."""
    radius = bodies.radius.unsqueeze(-1)
    wall = torch.where(bodies.velocity > 0, BOX - radius, radius)
    moves = (bodies.velocity != 0) & bodies.present.unsqueeze(-1)
    time = (wall - bodies.position) / torch.where(moves, bodies.velocity, 1.0)
    return torch.where(moves, time.clamp(min=0.0), torch.inf)


def one_pair(pairs: Bool[Tensor, "B M M"]) -> Bool[Tensor, "B M M"]:
    """The first pair of each box, if it has any."""
    flat = pairs.flatten(1)
    return (flat & (flat.cumsum(1) == 1)).view_as(pairs)


def collide(bodies: Bodies, pair: Bool[Tensor, "B M M"]) -> Bodies:
    """Exchange the momenta of the chosen pairs along the line between their centres."""
    x = bodies.position.unsqueeze(1) - bodies.position.unsqueeze(2)
    v = bodies.velocity.unsqueeze(1) - bodies.velocity.unsqueeze(2)
    normal = torch.nn.functional.normalize(x, dim=-1)  # from i to j
    mass_i, mass_j = bodies.mass.unsqueeze(2), bodies.mass.unsqueeze(1)
    size = 2.0 * mass_i * mass_j / (mass_i + mass_j) * (v * normal).sum(-1)
    impulse = torch.where(pair.unsqueeze(-1), size.unsqueeze(-1) * normal, 0.0)
    change = (impulse.sum(2) - impulse.sum(1)) / bodies.mass.unsqueeze(-1)
    return bodies._replace(velocity=bodies.velocity + change)


def reflect(bodies: Bodies, wall: Bool[Tensor, "B M 2"]) -> Bodies:
    """Turn the balls round that touch a wall."""
    return bodies._replace(velocity=torch.where(wall, -bodies.velocity, bodies.velocity))
