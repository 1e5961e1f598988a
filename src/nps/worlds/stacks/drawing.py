"""Pictures of towers: a ray caster that needs no graphics library, on any device.

Floor and walls have tiles; one light casts shadows, and a second, from everywhere, does not. The
original's textures are photographs; tiles and lights are ours.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from nps.worlds.stacks import camera
from nps.worlds.stacks.camera import PIXELS
from nps.worlds.stacks.physics import ROOM
from nps.worlds.stacks.raycast import NEVER, Shapes, distances, hidden, normals
from nps.worlds.stacks.towers import PALETTE

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8

LIGHT = (-0.45, -0.2, 0.87)
"""Where the light comes from."""
AMBIENT = 0.45
"""Share of the light that comes from everywhere."""
FLOOR, WALL = (0.72, 0.68, 0.60), (0.60, 0.66, 0.74)
TILE, JOINT = 1.25, 0.06
"""Side of a tile, and width of the darker joint around it."""
LIFT = 1e-3
"""Shadow rays start this far above a surface, or they would hit it."""
AT_ONCE = 8
"""Pictures that are drawn together."""


def segment(
    shapes: Shapes, at: Float[Tensor, "B R 2"] | None = None, pixels: int = PIXELS
) -> UInt8[Tensor, "B R"]:
    """What is seen at columns and rows of the picture: 0 for floor and walls, m + 1 for shape m.

    Args:
        shapes: B scenes.
        at: where to look; by default at the centres of all pixels, row by row.
        pixels: side of the picture.
    """
    device = shapes.position.device
    eye = camera.place(device).expand(len(shapes.kind), 1, 3)
    if at is None:
        at = camera.grid(pixels, pixels, device).expand(len(shapes.kind), -1, -1)
    seen = []
    for some in torch.arange(len(at), device=device).split(AT_ONCE * PIXELS**2 // at.shape[1] or 1):
        part = Shapes(*(x[some] for x in shapes))
        nearest, which = distances(part, eye[some], camera.rays(at[some], pixels)).min(1)
        seen.append(torch.where(nearest < NEVER, which + 1, 0).to(torch.uint8))
    return torch.cat(seen)


def render(
    shapes: Shapes, colour: Int[Tensor, "B M"], *, pixels: int = PIXELS, samples: int = 2
) -> UInt8[Tensor, "B pixels pixels 3"]:
    """Draw scenes.

    Args:
        shapes: B scenes.
        colour: of the shapes, indices into `PALETTE`.
        pixels: side of the pictures.
        samples: rays along each side of a pixel, of which it shows the mean.
    """
    device, side = shapes.position.device, pixels * samples
    towards = camera.rays(camera.grid(side, pixels, device), pixels)
    drawn = []
    for some in torch.arange(len(colour), device=device).split(AT_ONCE):
        part = Shapes(*(x[some] for x in shapes))
        light = _shade(part, colour[some], towards.expand(len(some), -1, -1))
        picture = F.avg_pool2d(light.unflatten(1, (side, side)).permute(0, 3, 1, 2), samples)
        drawn.append((255 * picture.clamp(0, 1)).round().to(torch.uint8).permute(0, 2, 3, 1))
    return torch.cat(drawn)


def _shade(
    shapes: Shapes, colour: Int[Tensor, "B M"], towards: Float[Tensor, "B R 3"]
) -> Float[Tensor, "B R 3"]:
    """The colours that rays from the camera meet."""
    device = towards.device
    eye = camera.place(device)
    nearest, which = distances(shapes, eye.expand(len(towards), 1, 3), towards).min(1)
    on_shape = (nearest < NEVER).unsqueeze(-1)
    far, facing, ink = _room(eye, towards)
    at = eye + torch.where(on_shape, nearest.unsqueeze(-1), far) * towards
    ink = torch.where(on_shape, _ink(device)[colour.gather(1, which)], ink)
    # A ray that misses gets some normal, too; it is not used.
    facing = torch.where(on_shape, normals(shapes, which, at), facing)
    lamp = F.normalize(torch.tensor(LIGHT, device=device), dim=0)
    bright = (facing * lamp).sum(-1).clamp(min=0.0)
    bright = bright * ~hidden(shapes, at + LIFT * facing, lamp)
    return ink * (AMBIENT + (1 - AMBIENT) * bright).unsqueeze(-1)


def _room(eye: Tensor, towards: Float[Tensor, "B R 3"]) -> tuple[Tensor, Tensor, Tensor]:
    """Distance of floor or wall along each ray, its normal, and its colour there."""
    planes = torch.tensor([0.0, ROOM, ROOM], device=eye.device)  # the floor's z, the walls' y and x
    along = torch.tensor([2, 1, 0], device=eye.device)
    far = (planes - eye[along]) / towards[..., along]
    far = torch.where(far > 0, far, NEVER)
    far, which = far.min(-1, keepdim=True)
    at = eye + far * towards
    facing = torch.tensor([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [-1.0, 0.0, 0.0]], device=eye.device)[
        which.squeeze(-1)
    ]
    # A tile's own coordinates, across and up: on the floor x and y, on a wall y or x and z.
    across = torch.where(which == 2, at[..., 1:2], at[..., 0:1])
    up = torch.where(which == 0, at[..., 1:2], at[..., 2:3])
    within = torch.cat([across, up], -1).remainder(TILE)
    number = (torch.cat([across, up], -1) / TILE).floor().sum(-1, keepdim=True)
    joint = (within < JOINT).any(-1, keepdim=True)
    shade = torch.where(joint, 0.75, torch.where(number.remainder(2) == 0, 1.0, 0.93))
    colours = torch.tensor([FLOOR, WALL, WALL], device=eye.device)[which.squeeze(-1)]
    return far, facing, colours * shade


@cache
def _ink(device: torch.device) -> Float[Tensor, "6 3"]:
    return (torch.tensor(PALETTE) / 255.0).to(device)
