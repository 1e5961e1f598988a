"""Score how a model tracks sprites by the benchmark's protocol, in frames seen and to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nps.experiments.sprites.config import Config
from nps.experiments.sprites.watching import AHEAD, as_floats, watch
from nps.metrics.tracking import Tracked, overlaps, track
from nps.models.op3 import OP3
from nps.models.tracker import Tracker
from nps.worlds.sprites import COLOURS, Videos, render

if TYPE_CHECKING:
    from jaxtyping import Float, Integer, UInt8

FIRST = 2
"""First frame that counts: in one frame nobody can see where a sprite goes."""
COUNT = "count_"
"""Before the name of what is summed over videos."""

Measured = dict[str, Tensor]
"""An entry for each video."""


class Part(NamedTuple):
    """Some held-out videos."""

    videos: Videos
    noise: Float[Tensor, "B K R"]
    """Where the slots of OP3 start: a function of the seed of the data, so that a test can be
    repeated."""

    def first(self, count: int) -> Part:
        return Part(self.videos.at(slice(count)), self.noise[:count])


def measure(config: Config, model: OP3 | Tracker, part: Part) -> Measured:
    """Counts of the protocol and errors, of a model and of floors, for each video."""
    images, labels = render(part.videos, size=config.size)
    frames = as_floats(images)
    watched = watch(model, frames, part.noise, config)
    slots, sprites = config.segments, part.videos.present.shape[2]
    measured = tracked("", labels[:, FIRST:], watched.segments[:, FIRST:], sprites, slots)
    measured["mse"] = error(watched.images, frames)
    measured["ahead1_mse"] = error(watched.expected, frames[:, 1:])
    measured["copy1_mse"] = error(frames[:, :-1], frames[:, 1:])
    for h in AHEAD:
        start = max(FIRST, h)  # frames before it are not predicted, or do not count
        predicted = watched.ahead[h][:, start - h :]
        measured |= tracked(f"ahead{h}_", labels[:, start:], predicted, sprites, slots)
        copied = labels[:, start - h : labels.shape[1] - h]
        measured |= tracked(f"copy{h}_", labels[:, start:], copied, sprites, sprites + 1)
        straight = straight_on(part.videos, h, config.size)[:, start - h : -h]
        measured |= tracked(f"straight{h}_", labels[:, start:], straight, sprites, sprites + 1)
    colours = by_colour(images[:, FIRST:])
    return measured | tracked("colour_", labels[:, FIRST:], colours, sprites, len(COLOURS) + 1)


def tracked(
    name: str,
    labels: Integer[Tensor, "B T H W"],
    segments: Integer[Tensor, "B T H W"],
    sprites: int,
    slots: int,
) -> Measured:
    """Counts of the protocol for each video, under names that begin with `name`.

    As in the benchmark, a sprite that is born where another was counts as the same object.
    """
    counts = [track(video) for video in overlaps(labels, segments, sprites, slots)]
    return {
        f"{COUNT}{name}{field}": torch.tensor([float(getattr(video, field)) for video in counts])
        for field in Tracked._fields
    }


def by_colour(images: UInt8[Tensor, "B T H W 3"]) -> Integer[Tensor, "B T H W"]:
    """A segment for each colour: whoever can tell colours apart, and nothing else."""
    bits = (images > 127).long()
    return (bits * torch.tensor([1, 2, 4], device=images.device)).sum(-1).clamp(max=len(COLOURS))


def straight_on(videos: Videos, frames: int, size: int) -> UInt8[Tensor, "B T size size"]:
    """True segments of each frame, if all its sprites then went on for some frames as they went
    last, and none was born. Sprites that were just born stay."""
    same = videos.identity[:, 1:] == videos.identity[:, :-1]
    way = (videos.position[:, 1:] - videos.position[:, :-1]) * same.unsqueeze(-1)
    way = torch.cat([torch.zeros_like(way[:, :1]), way], 1)
    return render(videos._replace(position=videos.position + frames * way), size=size).labels


def error(
    drawn: Float[Tensor, "B T 3 H W"], frames: Float[Tensor, "B T 3 H W"]
) -> Float[Tensor, "B"]:
    return (drawn - frames).square().flatten(1).mean(1)


def summary(measured: Measured) -> dict[str, Any]:
    """Metrics of all videos together: counts are summed, errors averaged."""
    found: dict[str, Any] = {}
    names = dict.fromkeys(name for name in measured if name.startswith(COUNT))
    prefixes = dict.fromkeys(
        name.removeprefix(COUNT).removesuffix("mostly_tracked")
        for name in names
        if name.endswith("mostly_tracked")
    )
    for prefix in prefixes:
        sums = [measured[f"{COUNT}{prefix}{field}"].sum().item() for field in Tracked._fields]
        found |= {f"{prefix}{name}": x for name, x in Tracked._make(sums).metrics().items()}
    errors = {name: x for name, x in measured.items() if not name.startswith(COUNT)}
    return found | {name: values.double().mean().item() for name, values in errors.items()}
