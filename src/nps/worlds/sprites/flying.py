"""Births, ways and deaths of sprites, for many videos at once.

Numbers are those of the benchmark's generator (Weis et al. 2021, after He et al. 2019). A sprite is
born at a random point of one border, flies to a random point of the opposite one at constant speed,
and is gone when it leaves the picture; some frames later another takes its place. 64 streams run
side by side, and a video is the next ten frames of one: sprites may be half way when it begins.

Ours: places and sizes are not rounded to pixels, and streams have run for a while before their
first video.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.worlds.balls.dynamics import Bodies, collide, one_pair, times_to_pairs

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Float64, Int64

SPRITES = 3
"""Most sprites at a time."""
CANVAS = 128.0
"""Side of the picture, in the units of places, sizes and speeds."""
MARGIN = 10.5
"""A sprite is born this far inside of a border, and gone when its centre is closer to one."""
SPEED = 5.3
"""Way in a frame."""
WAIT = 7
"""Frames in which a place stays empty: the one without the sprite that has left, five more, and the
one in which the generator places the next sprite, but does not show it yet."""
BIRTH = 0.5
"""Probability in each frame after those that a sprite is there."""
SIZE = 21.0
"""Side of a sprite, before it is scaled and stretched."""
SCALE, STRETCH = 0.1, 0.2
"""Largest change of a sprite's size, and of width over height, as shares."""
SHAPES = ("circle", "rectangle", "triangle", "diamond")
COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255), (0, 255, 255))
STREAMS = 64
"""Streams that run side by side; each gives every 64th video."""
WARM_UP = 60
"""Frames of a stream before its first video. The first sprites cross an empty picture."""


class Videos(NamedTuple):
    """B videos of T frames with at most O sprites; everything that is true about them."""

    position: Float32[Tensor, "B T O 2"]
    """Column and row of the centres, from the upper left, 0 to `CANVAS`."""
    present: Bool[Tensor, "B T O"]
    size: Float32[Tensor, "B T O 2"]
    """Width and height."""
    shape: Int64[Tensor, "B T O"]
    """Indices into `SHAPES`."""
    colour: Int64[Tensor, "B T O"]
    """Indices into `COLOURS`."""
    identity: Int64[Tensor, "B T O"]
    """A number for each sprite of a video, from 0 on with gaps; -1 where there is none."""
    collided: Bool[Tensor, "B T O O"]
    """Which sprites bounced off each other since the frame before."""

    def at(self, index: Tensor | slice) -> Videos:
        """Some of the videos."""
        return Videos(*(part[index] for part in self))


class Sky(NamedTuple):
    """S streams at one moment, with a place for each of O sprites."""

    position: Float64[Tensor, "S O 2"]
    velocity: Float64[Tensor, "S O 2"]
    present: Bool[Tensor, "S O"]
    size: Float64[Tensor, "S O 2"]
    shape: Int64[Tensor, "S O"]
    colour: Int64[Tensor, "S O"]
    births: Int64[Tensor, "S O"]
    """Sprites that were born in this place so far."""
    waits: Int64[Tensor, "S O"]
    """Frames until another may be born."""
    collided: Bool[Tensor, "S O O"]
    """Which sprites bounced off each other since the frame before."""


def make_videos(
    count: int,
    seed: int,
    *,
    frames: int = 10,
    sprites: int = SPRITES,
    bounce: bool = False,
    further: int = 0,
    device: torch.device | str = "cpu",
) -> Videos:
    """Videos as a function of the seed, the same on every device.

    Args:
        count: B, the number of videos.
        seed: of the videos.
        frames: T.
        sprites: O, most sprites at a time.
        bounce: whether sprites bounce off one another, as discs of equal mass.
        further: frames after the T of each video, which change nothing before them: the stream goes
            on, into its next video.
        device: where the videos are; they are simulated on the CPU.
    """
    for name, number in (("count", count), ("frames", frames), ("sprites", sprites)):
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"{name}: got {number!r}, expected a whole number of at least 1")
    if not isinstance(further, int) or further < 0:
        raise ValueError(f"further: got {further!r}, expected a whole number of at least 0")
    draw = torch.Generator().manual_seed(seed)
    streams = min(STREAMS, count)
    sky = empty(streams, sprites)
    seen = []
    for frame in range(-WARM_UP, -(-count // streams) * frames + further):
        sky = advance(sky, draw, bounce=bounce)
        if frame >= 0:
            seen.append(sky)

    def videos(parts: list[Tensor]) -> Tensor:
        """The first video of each stream, then the second of each, …"""
        cut = torch.stack(parts).unfold(0, frames + further, frames)  # (rounds, S, ..., T)
        first: Tensor = cut.movedim(-1, 2).flatten(0, 1)[:count]
        return first.to(device)

    every = Sky(*(videos(list(parts)) for parts in zip(*seen, strict=True)))
    return Videos(
        every.position.float(),
        every.present,
        every.size.float(),
        every.shape,
        every.colour,
        identities(every.births, every.present),
        every.collided,
    )


def empty(streams: int, sprites: int) -> Sky:
    none = torch.zeros(streams, sprites, dtype=torch.long)
    nowhere = torch.zeros(streams, sprites, 2, dtype=torch.float64)
    pairs = torch.zeros(streams, sprites, sprites, dtype=torch.bool)
    return Sky(nowhere, nowhere, none.bool(), nowhere, none, none, none, none, pairs)


def advance(sky: Sky, draw: torch.Generator, *, bounce: bool) -> Sky:
    """The next frame: sprites fly on, leave and are born."""
    sky = fly(sky, bounce)
    inside = ((sky.position >= MARGIN) & (sky.position <= CANVAS - MARGIN)).all(-1)
    gone = sky.present & ~inside
    waits = torch.where(gone, WAIT, sky.waits) - 1
    present = sky.present & inside
    born = ~present & (waits < 0) & (torch.rand(present.shape, generator=draw) < BIRTH)
    new = newborn(present.shape, draw)
    fields = {
        name: torch.where(born if old.dim() == 2 else born.unsqueeze(-1), getattr(new, name), old)
        for name, old in sky._asdict().items()
        if name in ("position", "velocity", "size", "shape", "colour")
    }
    births = sky.births + born
    return sky._replace(**fields, present=present | born, births=births, waits=waits.clamp(min=0))


def fly(sky: Sky, bounce: bool) -> Sky:
    """Straight on for one frame, through all impacts if sprites bounce."""
    none = torch.zeros_like(sky.collided)
    if not bounce:
        return sky._replace(position=sky.position + sky.velocity, collided=none)
    radius = sky.size.prod(-1).sqrt() / 2
    bodies = Bodies(sky.position, sky.velocity, radius, torch.ones_like(radius), sky.present)
    left, collided = radius.new_ones(len(radius)), none
    while bool((left > 0).any()):
        to_pair = times_to_pairs(bodies)
        step = torch.minimum(to_pair.flatten(1).amin(1), left)
        bodies = bodies._replace(position=bodies.position + bodies.velocity * step[:, None, None])
        left = left - step
        pair = one_pair(to_pair <= step[:, None, None])
        bodies, collided = collide(bodies, pair), collided | pair | pair.mT
    return sky._replace(position=bodies.position, velocity=bodies.velocity, collided=collided)


def newborn(shape: torch.Size, draw: torch.Generator) -> Sky:
    """A sprite for every place, on one border and on its way to the opposite one."""

    def uniform(low: float, high: float) -> Float64[Tensor, "S O"]:
        return low + (high - low) * torch.rand(shape, generator=draw, dtype=torch.float64)

    start, end = uniform(MARGIN, CANVAS - MARGIN), uniform(MARGIN, CANVAS - MARGIN)
    far = torch.full_like(start, CANVAS - 2 * MARGIN)
    border = torch.randint(4, shape, generator=draw)  # left, right, upper, lower
    forwards = border % 2 == 0
    first = torch.stack([torch.where(forwards, MARGIN, CANVAS - MARGIN), start], -1)
    way = torch.stack([torch.where(forwards, far, -far), end - start], -1)
    upright = (border >= 2).unsqueeze(-1)
    first, way = (torch.where(upright, x.flip(-1), x) for x in (first, way))
    side = SIZE * uniform(1 - SCALE, 1 + SCALE)
    stretch = uniform(1 - STRETCH, 1 + STRETCH).sqrt()
    return empty(*shape)._replace(
        position=first,
        velocity=SPEED * torch.nn.functional.normalize(way, dim=-1),
        size=torch.stack([side * stretch, side / stretch], -1),
        shape=torch.randint(len(SHAPES), shape, generator=draw),
        colour=torch.randint(len(COLOURS), shape, generator=draw),
    )


def identities(
    births: Int64[Tensor, "B T O"], present: Bool[Tensor, "B T O"]
) -> Int64[Tensor, "B T O"]:
    """A number for each sprite of a video, -1 where there is none."""
    earlier = births[:, :1] - present[:, :1].long()  # those that were gone before the video
    places = torch.arange(births.shape[-1], device=births.device)
    number = (births - earlier - 1) * births.shape[-1] + places
    return torch.where(present, number, -1)
