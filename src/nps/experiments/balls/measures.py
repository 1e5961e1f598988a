"""What is measured of predicted frames, for each scene: segments, positions, errors.

Segments and true objects are compared frame by frame, and over the whole video, where an object has
to keep its segment. Distances are in radii of a light ball, the unit of the world.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.metrics.segmentation import adjusted_rand_index, count_table, ious, match, mean_iou
from nps.worlds.balls import BOX

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int64, Integer, UInt8

Measured = dict[str, Tensor]
"""name -> a number for each scene"""


def tables(
    labels: Integer[Tensor, "B T H W"],
    segments: Integer[Tensor, "B T H W"],
    objects: int,
    components: int,
) -> Int64[Tensor, "B T objects components"]:
    """Pixels of each object (the background is 0) in each component, for every frame."""
    return count_table(labels.flatten(2), segments.flatten(2), objects, components)


def segmentation(table: Int64[Tensor, "B T objects components"]) -> Measured:
    """Agreement of segments and objects: means over frames, and of the whole video."""
    measured = {}
    for name, counts in {"": table, "video_": table.sum(1, keepdim=True)}.items():
        measured[f"{name}fg_ari"] = adjusted_rand_index(counts, foreground=True).mean(1)
        measured[f"{name}ari"] = adjusted_rand_index(counts, foreground=False).mean(1)
        measured[f"{name}fg_miou"] = mean_iou(counts).nanmean(1)
    return measured


def slots_of_balls(
    table: Int64[Tensor, "B T objects components"], slots: int
) -> Int64[Tensor, "B M"]:
    """The slot that shows each ball over the whole video, or -1."""
    overlap = ious(table.sum(1))[..., :slots]
    slot = match(overlap)
    shares = overlap.gather(-1, slot.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(shares > 0, slot, -1)


def centres(segments: Integer[Tensor, "B T H W"], slots: int) -> Float[Tensor, "B T slots 2"]:
    """Centre of each slot's pixels, as (column, row) in the box; the middle if it has none."""
    size = segments.shape[-1]
    along = (torch.arange(size, device=segments.device) + 0.5) * (BOX / size)
    of_slot = segments.unsqueeze(2) == torch.arange(slots, device=segments.device)[:, None, None]
    pixels = of_slot.float()
    area = pixels.sum((-1, -2))
    column, row = (pixels.sum(-2) @ along, pixels.sum(-1) @ along)
    found = torch.stack([column, row], -1) / area.clamp(min=1.0).unsqueeze(-1)
    return torch.where(area.unsqueeze(-1) > 0, found, 0.5 * BOX)


def distances(
    found: Float[Tensor, "B T slots 2"],
    position: Float[Tensor, "B T M 2"],
    slot_of_ball: Int64[Tensor, "B M"],
) -> Float[Tensor, "B T M"]:
    """From the true centre of each ball to that of its slot; of no slot, to the middle."""
    shape = (*position.shape[:3], 2)
    slot = slot_of_ball.clamp(min=0)[:, None, :, None].expand(shape)
    predicted = torch.where(slot_of_ball[:, None, :, None] >= 0, found.gather(2, slot), 0.5 * BOX)
    far: Tensor = torch.linalg.vector_norm(predicted - position, dim=-1)
    return far


def mean_where(values: Float[Tensor, "B T M"], where: Bool[Tensor, "B T M"]) -> Float[Tensor, "B"]:
    """Mean over those of a scene, NaN where there are none."""
    return (values * where).sum((1, 2)) / where.sum((1, 2))


def near_collisions(collided: Bool[Tensor, "B T M M"]) -> Bool[Tensor, "B T M"]:
    """Frames at the end of which, or of the one before, a ball has hit another."""
    hit = collided.any(-1)
    before = torch.cat([torch.zeros_like(hit[:, :1]), hit[:, :-1]], 1)
    return hit | before


def grid_segments(labels: Integer[Tensor, "B T H W"], side: int = 3) -> Int64[Tensor, "B T H W"]:
    """The floor of a fixed grid of side × side cells."""
    size = labels.shape[-1]
    cell = torch.arange(size, device=labels.device) * side // size
    return (cell[:, None] * side + cell).expand(labels.shape)


def colour_segments(
    labels: Integer[Tensor, "B T H W"], colour: Int64[Tensor, "B M"]
) -> Int64[Tensor, "B T H W"]:
    """The floor of perfect vision that tells colours apart, and no balls of one colour."""
    of_label = torch.cat([torch.zeros_like(colour[:, :1]), colour + 1], 1)
    return of_label.gather(1, labels.flatten(1).long()).view(labels.shape)


def visible(labels: UInt8[Tensor, "B T H W"], balls: int) -> Bool[Tensor, "B T M"]:
    """Which balls have a pixel."""
    return torch.stack([(labels == i + 1).flatten(2).any(-1) for i in range(balls)], -1)


def squared_error(
    predicted: Float[Tensor, "B T 3 H W"], images: UInt8[Tensor, "B T H W 3"]
) -> Float[Tensor, "B T 3 H W"]:
    return (predicted - channels_first(images)).square()


def channels_first(images: UInt8[Tensor, "B T H W 3"]) -> Float[Tensor, "B T 3 H W"]:
    return images.permute(0, 1, 4, 2, 3).float() / 255.0
