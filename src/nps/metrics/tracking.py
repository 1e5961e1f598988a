"""Multi-object tracking: does every object keep one segment for as long as it is seen?

The protocol of Weis et al. (2021), by which Sprites-MOT is scored (paper, section 4.3), with the
CLEAR-MOT metrics (Bernardin and Stiefelhagen 2008). In each frame, objects and predicted segments
whose masks overlap enough are matched: first those that were matched before, then the others, so
that the sum of the overlaps is largest. An object without a segment is a miss, a segment without an
object a false positive, and an object whose segment is not the one that it had last a switch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from nps.metrics.segmentation import count_table

if TYPE_CHECKING:
    from jaxtyping import Bool, Float64, Int64, Integer
    from numpy import ndarray

LEAST_PIXELS = 6
"""Smaller masks, true or predicted, do not count."""
LEAST_IOU = 0.5
"""Intersection over union from which on an object and a segment may be matched."""
BACKGROUND_IOU = 0.2
"""A segment that agrees with the true background by more than this is not a prediction."""
MOSTLY = 0.8
"""Share of its frames in which an object counts as mostly detected or mostly tracked."""


class Overlaps(NamedTuple):
    """O objects and S segments in T frames of a video."""

    iou: Float64[ndarray, "T O S"]
    visible: Bool[ndarray, "T O"]
    """Objects that have to be found."""
    predicted: Bool[ndarray, "T S"]
    """Segments that claim to be an object."""


class Tracked(NamedTuple):
    """Counts over all frames of one or more videos; they can be added up."""

    objects: int = 0
    """Visible objects, once for each frame."""
    matches: int = 0
    """Objects with the segment that they had last, or with their first."""
    switches: int = 0
    misses: int = 0
    false_positives: int = 0
    overlap: float = 0.0
    """Sum of the IoUs of matches and switches."""
    tracks: int = 0
    """Different objects."""
    mostly_detected: int = 0
    """Of these, objects that are matched or switched in most of their frames."""
    mostly_tracked: int = 0
    """Objects that are matched in most of their frames."""

    def plus(self, other: Tracked) -> Tracked:
        return Tracked._make(a + b for a, b in zip(self, other, strict=True))

    def metrics(self) -> dict[str, float]:
        """The leaderboard's metrics in per cent; 0 where there is nothing to count."""
        found = {
            "mota": _share(
                self.objects - self.misses - self.switches - self.false_positives, self.objects
            ),
            "motp": _share(self.overlap, self.matches + self.switches),
            "mostly_detected": _share(self.mostly_detected, self.tracks),
            "mostly_tracked": _share(self.mostly_tracked, self.tracks),
            "match": _share(self.matches, self.objects),
            "miss": _share(self.misses, self.objects),
            "switch": _share(self.switches, self.objects),
            "false_positive": _share(self.false_positives, self.objects),
        }
        return {name: 100.0 * value for name, value in found.items()}


def overlaps(
    true: Integer[Tensor, "B T *pixels"],
    segments: Integer[Tensor, "B T *pixels"],
    objects: int,
    count: int,
) -> list[Overlaps]:
    """Overlaps of objects and segments in each of B videos, on the host.

    Args:
        true: the object of each pixel, 0 to `objects`; 0 is the background.
        segments: the segment of each pixel, 0 to `count` - 1.
        objects: how many objects there are at most, in all frames together.
        count: how many segments.
    """
    table = count_table(true.flatten(2), segments.flatten(2), objects + 1, count)
    shared = table.double()
    of_true, of_segment = shared.sum(-1, keepdim=True), shared.sum(-2, keepdim=True)
    iou = shared / (of_true + of_segment - shared).clamp(min=1.0)
    visible = of_true[..., 1:, 0] >= LEAST_PIXELS
    predicted = of_segment[..., 0, :] >= LEAST_PIXELS
    predicted &= iou[..., 0, :] <= BACKGROUND_IOU
    parts = (x.cpu().numpy() for x in (iou[..., 1:, :], visible, predicted))
    return [Overlaps(*video) for video in zip(*parts, strict=True)]


def track(video: Overlaps) -> Tracked:
    """Match objects and segments, frame after frame."""
    frames, objects, _ = video.iou.shape
    last = np.full(objects, -1)  # the segment that each object had last
    matched, switched = np.zeros((2, objects), int)
    overlap, false_positives = 0.0, 0
    for t in range(frames):
        possible = (video.iou[t] >= LEAST_IOU) & video.visible[t, :, None] & video.predicted[t]
        segment = assign(video.iou[t], possible, last)
        found = segment >= 0
        switch = found & (last >= 0) & (segment != last)
        matched += found & ~switch
        switched += switch
        overlap += video.iou[t][found, segment[found]].sum()
        false_positives += int(video.predicted[t].sum() - found.sum())
        last = np.where(found, segment, last)
    seen = video.visible.sum(0)
    known = seen > 0
    missed = seen - matched - switched
    return Tracked(
        objects=int(seen.sum()),
        matches=int(matched.sum()),
        switches=int(switched.sum()),
        misses=int(missed.sum()),
        false_positives=false_positives,
        overlap=float(overlap),
        tracks=int(known.sum()),
        mostly_detected=int((known & (matched + switched >= MOSTLY * seen)).sum()),
        mostly_tracked=int((known & (matched >= MOSTLY * seen)).sum()),
    )


def assign(
    iou: Float64[ndarray, "O S"], possible: Bool[ndarray, "O S"], last: Int64[ndarray, "O"]
) -> Int64[ndarray, "O"]:
    """The segment of each object in one frame, or -1.

    Objects keep the segment that they had last if they can. As many of the others as possible get
    one of the rest, with the largest sum of IoUs.
    """
    segment = np.full(len(iou), -1)
    taken = np.zeros(iou.shape[1], bool)
    for i in np.flatnonzero(last >= 0):
        if possible[i, last[i]] and not taken[last[i]]:
            segment[i], taken[last[i]] = last[i], True
    possible = possible & (segment < 0)[:, None] & ~taken
    enough = iou.shape[0] + 1.0  # one more pair is worth more than any overlaps
    rows, columns = linear_sum_assignment(np.where(possible, enough + iou, 0.0), maximize=True)
    free = possible[rows, columns]
    segment[rows[free]] = columns[free]
    return segment


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
