"""Draw each slot as a small patch around its place, and paste it into the picture.

A decoder that draws the whole picture for each slot has to learn to draw the same object at every
place. Here what an object looks like and where it is are two things also in the picture: the patch
is drawn from the slot alone, and where it goes is interpolation, through which the place learns.
After the spatial transformers of SQAIR (Kosiorek et al. 2018) and SCALOR (Jiang et al. 2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nps.perception.frames import WINDOW, Drawing, Shuffle, compose
from nps.perception.places import PLACE, cell_centres

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

CELLS, PATCH = 4, 16
"""Sides of the patch where its convolutions start and where they end."""
REACH = 2.0
"""Extents from the centre of a patch to its sides."""


class PatchDecoder(nn.Module):
    """Draw each slot in one colour, with a mask in a patch; paste the patches, add the slots up.

    One colour, so that a mask is all there is to show a shape with: slots that could paint their
    rims black had masks like discs (docs/notes/sprites.md).

    Args:
        slot_dim: D, with the place.
        size: side of the frames in pixels.
        width: channels.
        extent: about the radius of an object, where half of the image's side is 1.

    Shapes: slots (B, M, D), of which some are present (B, M) -> images (B, 3, size, size), masks
    (B, M + 1, size, size); the last component is the background.
    """

    window: Tensor
    centres: Tensor

    def __init__(self, slot_dim: int, size: int, width: int = 64, *, extent: float) -> None:
        super().__init__()
        self.width, self.extent = width, extent
        self.colour = nn.Linear(slot_dim - PLACE, 3)
        self.cells = nn.Linear(slot_dim - PLACE, width * CELLS**2)
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.ConvTranspose2d(width, width, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 4, 3, padding=1),
            Shuffle(),
        )
        away = (REACH * cell_centres(PATCH)).square().sum(-1)
        self.register_buffer("window", WINDOW * (1.0 - away).view(PATCH, PATCH), persistent=False)
        along = (torch.arange(size) + 0.5) * (2.0 / size) - 1.0
        self.register_buffer("centres", along, persistent=False)
        self.background = nn.Parameter(torch.zeros(3))

    def forward(self, slots: Float[Tensor, "B M D"], present: Bool[Tensor, "B M"]) -> Drawing:
        b, m, _ = slots.shape
        state = slots[..., PLACE:]
        cells = self.cells(state).view(b * m, CELLS, CELLS, self.width).permute(0, 3, 1, 2)
        patches = self.layers(cells).float().view(b, m, PATCH, PATCH)
        with torch.autocast(slots.device.type, enabled=False):
            across, down = (self.weights(slots[..., i]) for i in range(PLACE))
            floor = self.window[0, 0]  # beside the patch a mask is as small as in its corners
            logit = down @ (patches + self.window - floor) @ across.mT + floor
        logit = logit.masked_fill(~present[..., None, None], -torch.inf).unsqueeze(2)
        colour = self.colour(state).float()[..., None, None].expand(-1, -1, -1, *logit.shape[-2:])
        return compose(colour, logit, self.background)

    def weights(self, place: Float[Tensor, "B M"]) -> Float[Tensor, "B M size P"]:
        """Of the cells of a patch in each row, or column, of the picture: linear interpolation."""
        at = (self.centres - place.unsqueeze(-1)) / (REACH * self.extent)  # -1 to 1 in the patch
        cell = (at + 1.0) * (PATCH / 2) - 0.5
        number = torch.arange(PATCH, device=cell.device, dtype=cell.dtype)
        return (1.0 - (cell.unsqueeze(-1) - number).abs()).clamp(min=0.0)
