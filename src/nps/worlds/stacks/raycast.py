"""Where rays hit the shapes of a tower: exact, for cuboids, cylinders and spheres alike.

All three are convex, and each is an intersection of simpler sets: slabs between two planes, and one
quadric. A ray is inside of each of these for an interval; the intersection of the intervals is what
it spends in the shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.worlds.stacks.camera import times
from nps.worlds.stacks.towers import CUBOID, CYLINDER, SPHERE

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

NEVER = float("inf")


class Shapes(NamedTuple):
    """B pictures of M shapes."""

    kind: Int[Tensor, "B M"]
    size: Float[Tensor, "B M 3"]
    """As in `Tower`."""
    position: Float[Tensor, "B M 3"]
    rotation: Float[Tensor, "B M 4"]

    def turns(self) -> Float[Tensor, "B M 3 3"]:
        """Rotation matrices, from a shape's own frame to the world's."""
        w, x, y, z = torch.nn.functional.normalize(self.rotation, dim=-1).unbind(-1)
        rows = [
            *(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
            *(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
            *(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
        ]
        turns: Tensor = torch.stack(rows, -1).unflatten(-1, (3, 3))
        return turns

    def own(self, start: Tensor, towards: Tensor) -> tuple[Tensor, Tensor]:
        """Rays in the frame of each shape: (B, #R, 3) -> (B, M, #R, 3)."""
        turns = self.turns()
        away = start.unsqueeze(1) - self.position.unsqueeze(2)
        return times(away, turns), times(towards.unsqueeze(1), turns)


def distances(
    shapes: Shapes, start: Float[Tensor, "B #R 3"], towards: Float[Tensor, "B R 3"]
) -> Float[Tensor, "B M R"]:
    """How far each ray goes before it enters each shape; infinite if it does not."""
    o, d = shapes.own(start, towards)
    half = shapes.size.unsqueeze(2)
    kind = shapes.kind[..., None]
    # Slabs: all three of a cuboid, the ends of a cylinder. A ray along a plane divides by zero, and
    # is inside for ever or never; within the plane itself it is 0 / 0, and misses.
    to, fro = (-half - o) / d, (half - o) / d
    enters, leaves = torch.minimum(to, fro), torch.maximum(to, fro)
    flat = (kind == CUBOID).unsqueeze(-1) | (
        (kind == CYLINDER).unsqueeze(-1) & torch.tensor([False, False, True], device=o.device)
    )
    enters = torch.where(flat, enters, -NEVER).amax(-1)
    leaves = torch.where(flat, leaves, NEVER).amin(-1)
    # The quadric: a cylinder without ends, or a ball.
    counted = torch.ones_like(shapes.size)
    counted[..., 2] = (shapes.kind == SPHERE).to(counted.dtype)
    counted = counted.unsqueeze(2)
    a = (counted * d * d).sum(-1)
    b = (counted * o * d).sum(-1)
    c = (counted * o * o).sum(-1) - half[..., 0].square()
    root = (b * b - a * c).sqrt()  # NaN: it misses
    round_ = kind != CUBOID
    enters = torch.where(round_, torch.maximum(enters, (-b - root) / a), enters)
    leaves = torch.where(round_, torch.minimum(leaves, (-b + root) / a), leaves)
    return torch.where((leaves >= enters) & (enters > 0), enters, NEVER)


def normals(shapes: Shapes, hit: Int[Tensor, "B R"], at: Float[Tensor, "B R 3"]) -> Tensor:
    """Outward unit vectors (B, R, 3) of shape `hit` at points of its surface."""
    pick = hit.unsqueeze(-1).expand(-1, -1, 3)
    turns = shapes.turns().flatten(2).gather(1, hit.unsqueeze(-1).expand(-1, -1, 9))
    turns = turns.unflatten(-1, (3, 3))
    kind = shapes.kind.gather(1, hit)
    half = shapes.size.gather(1, pick)
    q = times((at - shapes.position.gather(1, pick)).unsqueeze(-2), turns).squeeze(-2)
    share = q / half
    face = torch.nn.functional.one_hot(share.abs().argmax(-1), 3) * share.sign()
    side = torch.cat([q[..., :2], torch.zeros_like(q[..., :1])], -1) / half[..., :1]
    end = torch.zeros_like(q)
    end[..., 2] = q[..., 2].sign()
    on_end = share[..., 2].abs() >= share[..., :2].norm(dim=-1)
    of_cylinder = torch.where(on_end.unsqueeze(-1), end, side)
    kind = kind.unsqueeze(-1)
    own = torch.where(kind == CUBOID, face, torch.where(kind == CYLINDER, of_cylinder, share))
    facing: Tensor = times(own.unsqueeze(-2), turns.mT).squeeze(-2)
    return facing


def hidden(
    shapes: Shapes, start: Float[Tensor, "B R 3"], towards: Float[Tensor, "3"]
) -> Bool[Tensor, "B R"]:
    """Whether a shape is between points and a light that is infinitely far away."""
    found = distances(shapes, start, towards.expand(len(start), 1, 3))
    return (found < NEVER).any(1)
