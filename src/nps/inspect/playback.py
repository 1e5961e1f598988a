"""One episode as a model sees it: what `nps view` plays, `nps.inspect` explains and films show.

T steps lead from frame 0, which the model is given, to frame T. Everything is on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, UInt8
    from numpy import ndarray
    from torch import Tensor

    from nps.rules.inputs import Selection


@dataclass(frozen=True, eq=False)
class Call:
    """What a layer was given at one step besides its slots: with it, `explain` can compute the
    scores of changed slots."""

    selection: Selection | None = None
    """As for the call of the layer."""
    slot_mask: Bool[Tensor, "M"] | None = None
    """None: all slots."""
    rules: Bool[Tensor, "N"] | None = None
    """The rules that may fire; None: all."""


@dataclass(frozen=True)
class Record:
    """What a rule layer did at each of T steps, in each of K stages, on one scene of M slots.

    S is the size of the slots that the layer reads: for world models the slot and its action.
    """

    rule: Int[ndarray, "T K M"]
    """The rule that fired on a slot, or -1."""
    context: Int[ndarray, "T K M"]
    """The slot it took as its context, or -1."""
    rule_scores: Float[ndarray, "T K M N"]
    """Before masks and noise."""
    context_scores: Float[ndarray, "T K M M"]
    """Row m: scores of all slots as context of slot m; zero where slot m did not fire."""
    bids: Float[ndarray, "T K M 2"] | None
    """Of layers with a null rule: the bid of the rules, and that of the null rule."""
    before: Float[ndarray, "T K M S"]
    """The slots that the layer read at each stage."""
    update: Float[ndarray, "T K M S"]
    """What the stage added to each slot; zero where nothing fired."""
    calls: tuple[Call, ...] = ()
    """T of them, if the layer itself was recorded."""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """T, K, M, N."""
        steps, stages, slots, rules = self.rule_scores.shape
        return steps, stages, slots, rules


@dataclass(frozen=True)
class Playback:
    """T steps of one episode. Frames are bytes; where a model draws nothing, `predicted` is the
    frame with the nearest encoding."""

    true: UInt8[ndarray, "T+1 H W 3"]
    predicted: UInt8[ndarray, "T+1 H W 3"] | None
    """Frame 0 is the given one, or what the model makes of it."""
    right: Bool[ndarray, "T+1"] | None
    """Whether the predicted frame is the true one; None where that is not a question."""
    error: Float[ndarray, "T+1"]
    """The metric of each frame; NaN where it is not known."""
    error_name: str
    slots: Float[ndarray, "T+1 M D"]
    features: Float[ndarray, "T+1 M F"]
    """What people can read of a slot: probes of its place, colour or velocity, else its numbers."""
    feature_names: tuple[str, ...]
    """"row" and "column" are places in the picture, as shares of its sides."""
    slot_names: tuple[str, ...]
    masks: UInt8[ndarray, "T+1 M h w"] | None = None
    """Where in the picture each slot looks: 255 is most."""
    places: Float[ndarray, "T+1 M 2"] | None = None
    """Row and column of each slot, as shares of the picture's sides; NaN where it has none."""
    actions: Int[ndarray, "T"] | None = None
    """Index into the workbench's `actions`."""
    events: tuple[str, ...] = ()
    """What truly happened at each step, in a word or none: "push", "collision of 1 and 3"."""
    record: Record | None = None
    """None of models without rules."""

    @property
    def steps(self) -> int:
        return len(self.true) - 1


def first_difference(one: Playback, other: Playback) -> int | None:
    """The first frame whose pictures two playbacks of one episode predict differently, or its slots
    if there are no pictures; None if there is none. One that goes on after the other's end differs
    there."""
    if one.predicted is None or other.predicted is None:
        return first_change(one, other)
    frames = min(len(one.true), len(other.true))
    return _first_frame(one, other, one.predicted[:frames] == other.predicted[:frames])


def first_change(one: Playback, other: Playback) -> int | None:
    """The first frame in which the slots of two playbacks differ. Where a model draws nothing, they
    can differ though the nearest pictures are the same."""
    frames = min(len(one.true), len(other.true))
    return _first_frame(one, other, np.isclose(one.slots[:frames], other.slots[:frames]))


def _first_frame(one: Playback, other: Playback, same: Bool[ndarray, "t *shape"]) -> int | None:
    """The first of the frames that both have which is not the same, else the end of the shorter."""
    frames = len(same)
    parted = np.flatnonzero(~same.reshape(frames, -1).all(1))
    if len(parted):
        return int(parted[0])
    return None if len(one.true) == len(other.true) else frames
