"""Foresight: slots that go on without input should end up where they are seen later.

The error of the next picture alone teaches interactions little: what a collision does to one frame
is a rim of a few pixels, and the encoder, which sees more than one ball at a time, foresees part of
it. Here the slots of a frame, as they were read, go on for some frames by themselves, and are
compared with the slots that have read those frames. Both are taken as they are: gradients reach
motion and interaction alone. Let into the reading, they make it predictable in place of true: slots
that see nothing never err.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.models.scoff import Prediction, Scoff
from nps.perception.places import PLACE
from nps.rules import GatedParallelNPS, Trace

if TYPE_CHECKING:
    from jaxtyping import Float

FIRST = 1
"""The first frame to start from: in one alone, nobody can see how fast a ball is."""


def foresight(
    model: Scoff, predicted: Prediction, ahead: int, radius: float
) -> tuple[Tensor, Tensor]:
    """How far slots get from where they are seen, and how often a gated rule fires on the way.

    Args:
        model: one whose slots have a place.
        predicted: what the model has read and predicted.
        ahead: frames to look ahead; fewer where there are not so many.
        radius: unit of length.

    Returns:
        The mean distance over slots that stay present and all frames ahead: squared as far as it is
        below one radius, linear far beyond, where a slot has lost its object; and the share of
        these slots on which rules fire, with a gradient.
    """
    read = predicted.read.detach()
    frames = read.shape[1]
    ahead = min(ahead, frames - FIRST - 1)
    if ahead < 1:
        return read.new_zeros(()), read.new_zeros(())
    places = read[..., :PLACE].unfold(1, ahead, 1)[:, FIRST + 1 :].flatten(0, 1)  # (b, M, 2, ahead)
    start = read[:, FIRST : frames - ahead].flatten(0, 1)
    present, stay = None, start.new_ones(start.shape[:2])
    if predicted.present is not None:
        there = predicted.present[:, :frames].unfold(1, ahead + 1, 1)[:, FIRST:].flatten(0, 1)
        present, stay = there[..., 0], there.all(-1).to(read.dtype)
    gated = isinstance(model.interaction, GatedParallelNPS)
    imagined, trace = model.imagine(start, present, ahead, return_trace=gated)
    away = (imagined - places.movedim(-1, 1)).square().sum(-1) / radius**2  # (b, ahead, M)
    error = 2.0 * ((1.0 + away).sqrt() - 1.0)
    fired = torch.zeros_like(error) if trace is None else firing(trace)
    count = (ahead * stay.sum()).clamp(min=1.0)
    stay = stay.unsqueeze(1)
    return (error * stay).sum() / count, (fired * stay).sum() / count


def firing(trace: Trace) -> Float[Tensor, "b T M"]:
    """Probability that a rule of gated parallel NPS fires on each slot, at the first stage."""
    return trace.rule_scores[:, :, 0].amax(-1).sigmoid()
