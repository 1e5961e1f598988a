"""The tracker of Sprites-MOT: the model of bouncing balls, for objects that come and go.

SCOFF++ with places (models/scoff.py) predicts the next frame. The tracker also draws each frame
once it has read it, since tracking is scored on masks of frames that were seen:

    frame t ──► read ──► draw frame t
                  │
                  └────► + move ──► interaction ──► draw frame t + 1, before it is seen

Slots that see nothing are free, and take up objects that are born (perception/births.py). A slot
that moves may change all of itself but its place, so that it can expect its object to leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.models.scoff import LIMIT, start_at_zero
from nps.perception.births import BirthReader
from nps.perception.frames import Drawing, FrameEncoder
from nps.perception.patches import PatchDecoder
from nps.perception.places import PLACE, drift, in_radii
from nps.rules import RuleLayer, Trace

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, UInt8


class Watching(NamedTuple):
    """What the tracker makes of a video."""

    read: Float[Tensor, "B T M D"]
    """The slots of each frame, once it was seen."""
    present: Bool[Tensor, "B T M"]
    """Which of them see anything."""
    expected: Float[Tensor, "B T M D"]
    """The slots of the frame after each, before it is seen."""
    trace: Trace | None
    """What fired, with T behind B, if it was asked for and rules are what interacts."""


class Tracker(nn.Module):
    """Slots that follow objects through a video.

    Args:
        encoder: frames to features.
        reader: how slots read a frame, and start anew.
        interaction: what takes place between slots that see something; None: nothing.
        decoder: slots to frames.
        radius: about that of an object, where half of the image's side is 1: the unit in which
            slots move and interact.
        hidden_dim: hidden units of the network that moves each slot by itself.

    Shapes: frames (B, T, H, W, 3) of bytes -> `Watching`; `show` makes pictures of its slots.
    """

    def __init__(
        self,
        encoder: FrameEncoder,
        reader: BirthReader,
        interaction: nn.Module | None,
        decoder: PatchDecoder,
        *,
        radius: float,
        hidden_dim: int = 128,
    ) -> None:
        super().__init__()
        d = reader.slot_dim
        self.encoder, self.reader, self.decoder = encoder, reader, decoder
        self.interaction, self.radius = interaction, radius
        self.move = nn.Sequential(
            nn.Linear(d, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, d - PLACE)
        )
        start_at_zero(self.move[-1])

    def forward(
        self, frames: UInt8[Tensor, "B T H W 3"], *, return_trace: bool = False
    ) -> Watching:
        b, t = frames.shape[:2]
        # Time comes first, so that a frame is contiguous.
        features = self.encoder(frames.transpose(0, 1).flatten(0, 1)).unflatten(0, (t, b))
        views = self.reader.look_at(features)
        slots = self.reader.begin(views[0], self.reader.slots)
        read, presents, expected, traces = [], [], [], []
        for i, view in enumerate(views):
            slots, present = self.reader.read(view, slots, first=i == 0)
            assert present is not None  # slots with places know
            read.append(slots)
            presents.append(present)
            slots, trace = self.advance(slots, present, return_trace=return_trace)
            expected.append(slots)
            traces += [] if trace is None else [trace]
        trace = Trace(*(torch.stack(x, 1) for x in zip(*traces, strict=True))) if traces else None
        return Watching(
            torch.stack(read, 1), torch.stack(presents, 1), torch.stack(expected, 1), trace
        )

    def advance(
        self,
        slots: Float[Tensor, "B M D"],
        present: Bool[Tensor, "B M"],
        *,
        return_trace: bool = False,
    ) -> tuple[Float[Tensor, "B M D"], Trace | None]:
        """The next frame's slots: each by itself, then together, then on by its velocity.

        Args:
            slots: what they are in this frame.
            present: which of them interact.
            return_trace: also say what fired.
        """
        with torch.autocast(slots.device.type, enabled=False):
            seen = in_radii(slots, self.radius)
            new, trace = (seen + F.pad(self.move(seen), (PLACE, 0))).clamp(-LIMIT, LIMIT), None
            if isinstance(self.interaction, RuleLayer) and return_trace:
                new, trace = self.interaction(new, slot_mask=present, return_trace=True)
            elif self.interaction is not None:
                new = self.interaction(new, slot_mask=present)
            new = in_radii(new.clamp(-LIMIT, LIMIT), 1.0 / self.radius)
            return drift(new, slots), trace

    def go_on(
        self, slots: Float[Tensor, "B T M D"], present: Bool[Tensor, "B T M"]
    ) -> Float[Tensor, "B T M D"]:
        """One more frame without seeing it, from each of T moments; those who were present are."""
        new, _ = self.advance(slots.flatten(0, 1), present.flatten(0, 1))
        later: Tensor = new.unflatten(0, slots.shape[:2])
        return later

    def draw_both(self, watching: Watching) -> tuple[Drawing, Drawing]:
        """The frames as seen, and all but the first as expected."""
        seen = watching.read.shape[1]
        slots = torch.cat([watching.read, watching.expected[:, :-1]], 1)
        drawn = self.show(slots, torch.cat([watching.present, watching.present[:, :-1]], 1))
        parts = [x.split([seen, seen - 1], 1) for x in drawn]
        return Drawing(*(x[0] for x in parts)), Drawing(*(x[1] for x in parts))

    def show(self, slots: Float[Tensor, "B T M D"], present: Bool[Tensor, "B T M"]) -> Drawing:
        """The frames that slots stand for; those that see nothing draw nothing."""
        if torch.is_grad_enabled():
            drawn: Drawing = self.decoder(slots.flatten(0, 1), present.flatten(0, 1))
            return Drawing(*(x.unflatten(0, slots.shape[:2]) for x in drawn))
        # Without a gradient videos may be long: one frame at a time needs little memory.
        parts = [self.decoder(*one) for one in zip(slots.unbind(1), present.unbind(1), strict=True)]
        return Drawing(*(torch.stack(x, 1) for x in zip(*parts, strict=True)))
