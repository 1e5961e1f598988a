"""Predicted frames as pictures: what is true, what was predicted, and which slot drew what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nps.experiments.balls.measures import centres
from nps.inspect.animations import Arrow, Ring, Scene, gif
from nps.inspect.grids import grid, to_bytes
from nps.models.scoff import Prediction
from nps.rules import Trace
from nps.worlds.balls import BOX, Scenes

if TYPE_CHECKING:
    from jaxtyping import Float, Integer, UInt8
    from numpy import ndarray

SLOT_COLOURS = (
    *((0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233)),
    *((213, 94, 0), (240, 228, 66), (160, 160, 160), (255, 255, 255)),
)
"""One for each slot, over and over; Okabe and Ito's first."""


def prediction_picture(
    images: UInt8[Tensor, "B T H W 3"], predicted: Prediction
) -> UInt8[ndarray, "height width 3"]:
    """Three rows for each scene, a column for each frame."""
    drawn = to_bytes(predicted.images.permute(0, 1, 3, 4, 2).cpu().numpy())
    slots = predicted.slots.shape[2]
    segments = segment_picture(predicted.masks.argmax(2), slots)
    rows = np.stack([images.cpu().numpy(), drawn, segments], 1)
    return grid(rows.reshape(-1, *rows.shape[2:]))


def segment_picture(
    segments: Integer[Tensor, "*batch H W"], slots: int
) -> UInt8[ndarray, "*batch H W 3"]:
    """Each slot in its colour; the background, which is no slot, in black."""
    colours = [SLOT_COLOURS[m % len(SLOT_COLOURS)] for m in range(slots)]
    table = torch.tensor([*colours, (0, 0, 0)], dtype=torch.uint8)
    picture: ndarray = table[segments.long().cpu()].numpy()
    return picture


FRAME_TIME = 400
"""Milliseconds of a frame in an animation."""
SIDE = 256
"""Screen pixels of the side of a frame in an animation."""
RING_APART = 1.5
"""Pixels of a frame between a ball and its ring."""
TITLES = ("true", "predicted", "slots")


def rollout_gif(
    images: UInt8[Tensor, "B T H W 3"],
    predicted: Prediction,
    change: Float[Tensor, "B T M"],
    seen: int,
    scene: int = 0,
    *,
    loud: float = 0.0,
    scenes: Scenes | None = None,
) -> bytes:
    """One scene as a moving picture: the true frame, the predicted one, and its slots.

    An arrow leads from the contextual slot to the slot that a rule changes; if rules change several
    slots, to the one that changes most. The line below names rule and slots. Balls that have hit
    one another since the frame before have a ring in the true frame.

    Args:
        images: the true frames, of which the first is the first that is predicted.
        predicted: as many frames.
        change: how much the interaction changed each slot.
        seen: number of frames that were predicted from the true frame before.
        scene: which of the batch.
        loud: how large a change is that tells of a collision; arrows of smaller ones are faint.
        scenes: what is true, if collisions are to be marked.
    """
    size, frames, slots = images.shape[2], images.shape[1], predicted.slots.shape[2]
    segments = predicted.masks[scene].argmax(1)
    places = (centres(segments.unsqueeze(0), slots)[0].cpu() * (size / BOX) - 0.5).flip(-1)
    drawn = to_bytes(predicted.images[scene].permute(0, 2, 3, 1).cpu().numpy())
    colours = segment_picture(segments, slots)
    moments = []
    for t, true in enumerate(images[scene].cpu().numpy()):
        visible = segments[t].unique().tolist()
        at = {m: tuple(places[t, m].tolist()) for m in range(slots) if m in visible}
        bound, arrow = strongest(predicted.trace, change, scene, t, list(at)), None
        text = f"frame {t + 1} of {frames}{'' if t < seen else ', without input'}"
        if bound is not None:
            text += f": rule {bound.rule} on slot {bound.primary}, context slot {bound.context}"
            if bound.primary not in at:
                text += f" (slot {bound.primary} draws nothing)"
            elif bound.points(list(at)):
                faint = change[scene, t, bound.primary].item() <= loud
                arrow = Arrow(at[bound.context], at[bound.primary], faint=faint)
        shown, arrows = [true, drawn[t], colours[t]], [None, arrow, None]
        labels = {str(m): place for m, place in at.items()}
        rings = [] if scenes is None else collision_rings(scenes, scene, t + 1, size)
        moments.append(Scene(shown, arrows, text, FRAME_TIME, TITLES, labels, rings))
    return gif(moments, max(1, SIDE // size))


def collision_rings(scenes: Scenes, scene: int, frame: int, size: int) -> list[Ring]:
    """Around each ball that has hit another since the frame before."""
    hit = scenes.collided[scene, frame].any(-1).nonzero().flatten().tolist()
    places = (scenes.position[scene, frame] * (size / BOX) - 0.5).flip(-1).tolist()
    radii = (scenes.radius[scene] * (size / BOX)).tolist()
    return [Ring((places[i][0], places[i][1]), radii[i] + RING_APART) for i in hit]


class Bound(NamedTuple):
    """A rule that fired, the slot it changed, and its context."""

    rule: int
    primary: int
    context: int

    def points(self, visible: Sequence[int]) -> bool:
        """Whether it leads from one visible slot to another."""
        return self.primary != self.context and {self.primary, self.context} <= set(visible)


def strongest(
    trace: Trace | None,
    change: Float[Tensor, "B T M"],
    scene: int,
    frame: int,
    visible: Sequence[int],
) -> Bound | None:
    """Of the rules that fired, the one whose slot changes most; first of all, of those that lead
    from one visible slot to another. None if none fired."""
    if trace is None:
        return None
    rule, context = (x[scene, frame].tolist() for x in (trace.rule, trace.context))
    amount = change[scene, frame].tolist()
    fired = [
        Bound(rules[m], m, contexts[m])
        for rules, contexts in zip(rule, context, strict=True)  # stage by stage
        for m in range(len(rules))
        if rules[m] >= 0
    ]
    return max(fired, key=lambda b: (b.points(visible), amount[b.primary]), default=None)
