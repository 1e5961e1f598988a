"""Images of bouncing balls and their true segmentation, drawn on the device without host access.

A pixel belongs to a ball if its centre is inside; balls never overlap, so the order is irrelevant.
The background is black.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.worlds.balls.dynamics import BOX
from nps.worlds.balls.scenes import CURTAIN, PALETTE

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int64, UInt8


class Drawn(NamedTuple):
    images: UInt8[Tensor, "B T size size 3"]
    labels: UInt8[Tensor, "B T size size"]
    """0 for the background, m + 1 for ball m."""


def render(
    position: Float[Tensor, "B T M 2"],
    radius: Float[Tensor, "B M"],
    present: Bool[Tensor, "B M"],
    colour: Int64[Tensor, "B M"],
    *,
    size: int = 64,
    curtain: Float[Tensor, "B 2"] | None = None,
) -> Drawn:
    """Draw frames.

    Args:
        position, radius, present, colour: as in `Scenes`.
        size: side of the images in pixels.
        curtain: upper left corner of a black square that hides what is behind it.
    """
    centres = (torch.arange(size, device=position.device) + 0.5) * (BOX / size)
    across, down = (centres - position[..., i, None] for i in (0, 1))  # (B, T, M, size)
    distance = down.square().unsqueeze(-1) + across.square().unsqueeze(-2)
    inside = distance < radius.square()[:, None, :, None, None]
    inside &= present[:, None, :, None, None]
    if curtain is not None:
        hidden = (centres >= curtain[..., None]) & (centres < curtain[..., None] + CURTAIN)
        inside &= ~(hidden[:, 1, :, None] & hidden[:, 0, None, :])[:, None, None]
    number = torch.arange(1, position.shape[-2] + 1, device=position.device, dtype=torch.uint8)
    labels = (inside * number[:, None, None]).amax(-3)
    ink = _ink(position.device)
    colours = torch.cat([ink[-1].expand(len(colour), 1, 3), ink[colour]], 1)  # by label
    pixel = labels.flatten(1).long().unsqueeze(-1).expand(-1, -1, 3)
    return Drawn(colours.gather(1, pixel).view(*labels.shape, 3), labels)


@cache
def _ink(device: torch.device) -> UInt8[Tensor, "5 3"]:
    """The palette and, last, black; kept on the device, since a captured step cannot copy it."""
    return torch.tensor((*PALETTE, (0, 0, 0)), dtype=torch.uint8).to(device)
