"""The paper's encoder from an image to slots: four convolutions and slot attention.

Appendix, "Physics Environment": "a 4-layered convolutional encoder which preserves the spatial
dimensions of the image and encodes each pixel into 64 channels", then slot attention to M slots of
64. What the text leaves open is as in Slot Attention (Locatello et al. 2020): ReLU, a position
embedding, a normalisation and an MLP for each pixel. Neither text nor code gives the size of the
kernels: 3 × 3 here, which agrees with the paper's hour of training on a V100.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nps.kernels.feature_norm import normalise_features
from nps.networks import Linear, linear
from nps.perception.conv import ConvReLU
from nps.perception.images import image_size, require_images
from nps.perception.slot_attention import SlotAttention, Start, fold_norm

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

KERNEL = 3
LAYERS = 4


class Position(nn.Module):
    """The position embedding: a linear map of a pixel's distances from the four borders.

    Shapes: -> (H * W, width).
    """

    grid: Tensor

    def __init__(self, size: tuple[int, int], width: int) -> None:
        super().__init__()
        along = (torch.linspace(0.0, 1.0, side) for side in size)
        down, right = torch.meshgrid(*along, indexing="ij")
        grid = torch.stack([down, right, 1.0 - down, 1.0 - right], -1).flatten(0, 1)
        self.register_buffer("grid", grid, persistent=False)
        self.linear = nn.Linear(4, width)

    def forward(self) -> Float[Tensor, "n width"]:
        with torch.autocast(self.grid.device.type, enabled=False):
            position: Tensor = self.linear(self.grid)
        return position


class SlotEncoder(nn.Module):
    """Images to slots.

    Args:
        slots: M, number of slots.
        slot_dim: D, size of a slot.
        channels: C of the images.
        size: side of the images in pixels, or (height, width).
        width: channels of the convolutions, and size of a feature.
        iterations: of slot attention.
        hidden_dim: hidden units of slot attention's MLP.
        start: initial slots; only "learned" gives the slots of all images the same order.

    Shapes: images (B, H, W, C), as bytes or as numbers from 0 to 1 -> (B, M, D).
    """

    def __init__(
        self,
        slots: int,
        slot_dim: int,
        *,
        channels: int = 3,
        size: int | tuple[int, int] = 50,
        width: int = 64,
        iterations: int = 3,
        hidden_dim: int = 128,
        start: Start = "learned",
    ) -> None:
        super().__init__()
        for name, number in {"channels": channels, "width": width}.items():
            if number < 1:
                raise ValueError(f"{name}: got {number}, expected at least 1")
        self.channels, self.size = channels, image_size(size)
        sizes = (channels, *[width] * (LAYERS - 1))
        self.convolutions = nn.ModuleList(ConvReLU(c, width, KERNEL) for c in sizes)
        self.place = Position(self.size, width)
        self.norm = nn.LayerNorm(width)
        self.hidden, self.out = Linear(width, width), Linear(width, width)
        self.attention = SlotAttention(
            slots,
            slot_dim,
            feature_dim=width,
            iterations=iterations,
            hidden_dim=hidden_dim,
            start=start,
        )

    def features(self, images: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B n width"]:
        """A vector for every pixel."""
        require_images(images, (*self.size, self.channels))
        x = images
        for convolution in self.convolutions:
            x = convolution(x)
        x = normalise_features(x.flatten(1, 2), self.place())
        x = linear(x, *fold_norm(self.norm, self.hidden)).relu()
        features: Tensor = self.out(x)
        return features

    def maps(self, images: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B M h w"]:
        """The share of each pixel that each slot got in the last iteration."""
        attention: Tensor = self.attention(self.features(images), return_attention=True)[1]
        return attention.view(*attention.shape[:2], *self.size)

    def forward(self, images: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B M D"]:
        slots: Tensor = self.attention(self.features(images))
        return slots
