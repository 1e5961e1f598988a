"""Predicted frames as pictures: what is true, what was predicted, and which slot drew what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nps.experiments.balls.measures import centres
from nps.inspect import style
from nps.inspect.animations import Arrow, Scene, gif
from nps.inspect.grids import grid, to_bytes
from nps.models.scoff import Prediction
from nps.rules import Trace
from nps.worlds.balls import BOX

if TYPE_CHECKING:
    from jaxtyping import Int64, Integer, UInt8
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


def firing_figure(rule: Int64[ndarray, "T K M"], seen: int) -> bytes:
    """Which rule fires on which slot when: the paper's figure, a column of stages for each frame.

    Args:
        rule: the rule that fired on slot m at stage k of frame t, or -1.
        seen: number of frames with input; a line separates the others.
    """
    frames, stages, slots = rule.shape
    with style.settings():
        figure = style.new_figure(0.35 * slots + 0.8, style.WIDTH)
        axis = figure.subplots()
        cells = rule.transpose(2, 0, 1).reshape(slots, frames * stages)
        for slot, row in enumerate(cells):
            for column, number in enumerate(row):
                if number >= 0:
                    x = (column + 0.5) / stages
                    colour = style.RULES[number % len(style.RULES)]
                    axis.text(x, slot, str(number), color=colour, ha="center", va="center", size=7)
        axis.set_xlim(0, frames)
        axis.set_ylim(slots - 0.5, -0.5)
        axis.set_yticks(range(slots))
        axis.axvline(seen, color="black", linewidth=1)
        axis.set_xlabel("predicted frame; right of the line without input")
        axis.set_ylabel("slot")
        return style.png(figure)


FRAME_TIME = 350
"""Milliseconds of a frame in an animation."""


def rollout_gif(
    images: UInt8[Tensor, "B T H W 3"], predicted: Prediction, seen: int, scene: int = 0
) -> bytes:
    """One scene as a moving picture: the true frame, the predicted one, and its segments.

    An arrow leads from the contextual slot to the slot that a rule changes: that of the first stage
    in which they differ.
    """
    slots = predicted.slots.shape[2]
    segments = predicted.masks.argmax(2)
    places = centres(segments, slots)[scene].cpu() * (images.shape[2] / BOX) - 0.5
    drawn = to_bytes(predicted.images[scene].permute(0, 2, 3, 1).cpu().numpy())
    parts = segment_picture(segments[scene], slots)
    scenes = []
    for t, (true, guess, part) in enumerate(
        zip(images[scene].cpu().numpy(), drawn, parts, strict=True)
    ):
        arrow, says = None, ""
        bound = None if predicted.trace is None else first_pair(predicted.trace, scene, t)
        if bound is not None:
            rule, primary, context = bound
            begin, end = ((y.item(), x.item()) for x, y in places[t, [context, primary]])
            arrow, says = Arrow(begin, end), f": rule {rule} on slot {primary}, context {context}"
        title = f"frame {t + 1}{says if t < seen else ', no input' + says}"
        scenes.append(Scene([true, guess, part], [None, arrow, None], title, FRAME_TIME))
    return gif(scenes)


def first_pair(trace: Trace, scene: int, frame: int) -> tuple[int, int, int] | None:
    """Rule, primary slot and contextual slot of the first stage where the two slots differ."""
    rule, context = (x[scene, frame].cpu() for x in (trace.rule, trace.context))
    for k, slot in (rule >= 0).nonzero().tolist():
        if context[k, slot] not in (-1, slot):
            return int(rule[k, slot]), slot, int(context[k, slot])
    return None
