"""How well predicted segments agree with true objects: adjusted Rand index and mean IoU.

The paper reports "ARI" for bouncing balls and does not say of which pixels. The foreground ARI
leaves out the pixels of the background, the usual choice for slot models, and is blind to segments
that spill over it; the full ARI counts the background as one more object, and is high for anyone
who finds the background. The IoU of each object with its own segment sees both.

All of them are functions of a table of counts, pixels of each object in each segment. The table of
a frame gives a frame's value; summed over time, that of a video, where an object must keep its
segment. Counts are integers and sums float64: squares of the pixels of a long video overflow less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64, Integer


def count_table(
    true: Integer[Tensor, "*batch n"],
    predicted: Integer[Tensor, "*batch n"],
    objects: int,
    segments: int,
) -> Int64[Tensor, "*batch objects segments"]:
    """Pixels of each object in each segment.

    Args:
        true: the object of each pixel, 0 to `objects` - 1; 0 is the background.
        predicted: the segment of each pixel, 0 to `segments` - 1.
        objects, segments: how many there are, the background included.
    """
    cell = true.long() * segments + predicted.long()
    table = torch.zeros(*cell.shape[:-1], objects * segments, dtype=torch.long, device=cell.device)
    table.scatter_add_(-1, cell, torch.ones_like(cell))
    return table.view(*cell.shape[:-1], objects, segments)


def adjusted_rand_index(
    table: Int64[Tensor, "*batch objects segments"], *, foreground: bool
) -> Float64[Tensor, "*batch"]:
    """Share of pixel pairs that both agree on, 0 for chance and 1 for a perfect match.

    Two trivial segmentations, all pixels in one segment or none, agree perfectly, as in
    scikit-learn.

    Args:
        table: of `count_table`.
        foreground: leave out the pixels of the background.
    """
    counts = (table[..., 1:, :] if foreground else table).double()
    together = _pairs(counts).sum((-1, -2))
    true, predicted = (_pairs(counts.sum(dim)).sum(-1) for dim in (-1, -2))
    total = _pairs(counts.sum((-1, -2)))
    expected = true * predicted / total.clamp(min=1.0)
    most = 0.5 * (true + predicted)
    trivial = most == expected
    return torch.where(
        trivial, 1.0, (together - expected) / torch.where(trivial, 1.0, most - expected)
    )


def _pairs(counts: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    return 0.5 * counts * (counts - 1.0)


def ious(
    table: Int64[Tensor, "*batch objects segments"],
) -> Float64[Tensor, "*batch objects-1 segments"]:
    """Intersection over union of each object, without the background, with each segment."""
    counts = table.double()
    union = counts.sum(-1, keepdim=True) + counts.sum(-2, keepdim=True) - counts
    return (counts / union.clamp(min=1.0))[..., 1:, :]


def match(iou: Float64[Tensor, "*batch objects segments"]) -> Int64[Tensor, "*batch objects"]:
    """The segment of each object in the assignment with the largest sum of IoUs (Hungarian).

    -1 for objects that get none, where there are fewer segments than objects. On the host.
    """
    *batch, objects, segments = iou.shape
    assigned = np.full((int(np.prod(batch)), objects), -1)
    for row, table in zip(assigned, iou.reshape(-1, objects, segments).cpu().numpy(), strict=True):
        mine, theirs = linear_sum_assignment(table, maximize=True)
        row[mine] = theirs
    return torch.from_numpy(assigned).view(*batch, objects).to(iou.device)


def mean_iou(table: Int64[Tensor, "*batch objects segments"]) -> Float64[Tensor, "*batch"]:
    """Mean IoU of the visible objects, without the background, each with its matched segment.

    NaN where no object is visible.
    """
    iou = ious(table)
    assigned = match(iou)
    found = iou.gather(-1, assigned.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    found = torch.where(assigned >= 0, found, 0.0)
    visible = table[..., 1:, :].sum(-1) > 0
    return (found * visible).sum(-1) / visible.sum(-1)
