"""What a model says of a video: segments of each frame once it has seen it, and of the frames to
come.

The benchmark scores masks *after* a frame was seen, so that dynamics matter only indirectly. Masks
that are predicted one and three frames ahead are scored as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.experiments.sprites.config import Config
from nps.models.op3 import OP3, Drawn, Moment
from nps.models.op3_schedule import rprp
from nps.models.op3_state import State
from nps.models.tracker import Tracker

if TYPE_CHECKING:
    from jaxtyping import Float, Int64, UInt8

AHEAD = (1, 3)
"""Frames ahead of which predictions are scored."""


class Watched(NamedTuple):
    """Segments are numbers of slots, or the background's."""

    segments: Int64[Tensor, "B T H W"]
    """Of each frame, once it was seen."""
    images: Float[Tensor, "B T 3 H W"]
    """What is drawn then."""
    ahead: dict[int, Int64[Tensor, "B T-h H W"]]
    """h -> segments of the frames from h on, predicted h frames before."""
    expected: Float[Tensor, "B T-1 3 H W"]
    """What is drawn one frame ahead."""
    background: int | None = None
    """The segment that is no slot; None if a slot has to draw the background."""


@torch.no_grad()
def watch(
    model: OP3 | Tracker,
    frames: Float[Tensor, "B T 3 H W"],
    noise: Float[Tensor, "B K R"],
    config: Config,
) -> Watched:
    """Show a video to a model, and ask it after each frame.

    Args:
        model: the model, in evaluation mode.
        frames: the video.
        noise: where the slots of OP3 start.
        config: how often OP3 refines a frame.
    """
    if isinstance(model, Tracker):
        return watch_with_tracker(model, frames)
    count, moments = frames.shape[1], watch_moments(model, frames, noise, config)
    seen = [next(m for m in reversed(moments) if m.frame == t) for t in range(count)]
    expected = [moment for moment in moments if moment.step == "move"]
    ahead: dict[int, list[Tensor]] = {h: [] for h in AHEAD}
    for t, moment in enumerate(seen):
        for h, drawn in enumerate(unseen(model, moment.state, min(max(AHEAD), count - 1 - t)), 1):
            if h in ahead:
                ahead[h].append(segments(drawn))
    return Watched(
        torch.stack([segments(moment.drawn) for moment in seen], 1),
        torch.stack([image(moment.drawn) for moment in seen], 1),
        {h: torch.stack(found, 1) for h, found in ahead.items()},
        torch.stack([image(moment.drawn) for moment in expected], 1),
    )


def watch_with_tracker(model: Tracker, frames: Float[Tensor, "B T 3 H W"]) -> Watched:
    """Slots see all frames; frames to come are drawn from slots that go on without seeing more."""
    count = frames.shape[1]
    watching = model(as_bytes(frames))
    seen, expected = model.draw_both(watching)
    ahead, slots = {}, watching.expected
    for h in range(1, min(max(AHEAD), count - 1) + 1):
        slots = slots if h == 1 else model.go_on(slots, watching.present)
        if h in AHEAD:
            shown = slots[:, : count - h], watching.present[:, : count - h]
            ahead[h] = model.show(*shown).masks.argmax(2)
    background = model.reader.slots  # the last component
    return Watched(seen.masks.argmax(2), seen.images, ahead, expected.images, background)


def watch_moments(
    model: OP3,
    frames: Float[Tensor, "B T 3 H W"],
    noise: Float[Tensor, "B K R"],
    config: Config,
    *,
    return_trace: bool = False,
) -> list[Moment]:
    """All steps of a video."""
    refinements = {"first": config.first_refinements, "later": config.refinements}
    schedule = rprp(frames.shape[1], **refinements)
    options = {"noise": noise, "return_trace": return_trace}
    return list(model(frames, schedule, noise.shape[1], **options))


def unseen(model: OP3, state: State, frames: int) -> list[Drawn]:
    """The next frames, without seeing them."""
    drawn = []
    for _ in range(frames):
        state, _ = model.move(state)
        drawn.append(model.draw(state))
    return drawn


def as_floats(images: UInt8[Tensor, "B T H W 3"]) -> Float[Tensor, "B T 3 H W"]:
    """From 0 to 1, channels before rows."""
    return images.movedim(-1, -3).float() / 255.0


def as_bytes(frames: Float[Tensor, "B T 3 H W"]) -> UInt8[Tensor, "B T H W 3"]:
    return (255.0 * frames).round().to(torch.uint8).movedim(-3, -1)


def segments(drawn: Drawn) -> Int64[Tensor, "B H W"]:
    return drawn.masks.squeeze(2).argmax(1)


def image(drawn: Drawn) -> Float[Tensor, "B 3 H W"]:
    return (drawn.masks * drawn.colours).sum(1)
