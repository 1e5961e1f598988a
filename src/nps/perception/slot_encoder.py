"""The paper's way from an image to slots: four convolutions and slot attention.

Appendix, "Physics Environment": "a 4-layered convolutional encoder which preserves the spatial
dimensions of the image and encodes each pixel into 64 channels", then slot attention to M slots of
64. What the text leaves open is as in Slot Attention (Locatello et al. 2020): ReLU, a position
embedding, a normalisation and an MLP for each pixel. The size of the kernels is in neither text nor
code: 3 × 3 here, with which the paper's hour on a V100 agrees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.networks import Linear, linear
from nps.perception import cudnn, extractors
from nps.perception.attend import normalise
from nps.perception.convolution import numbers
from nps.perception.slot_attention import SlotAttention, Start, after

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

KERNEL = 3
LAYERS = 4


class Conv(extractors.Conv):
    """A convolution that keeps the image's size, and ReLU."""

    def __init__(self, size_in: int, size_out: int) -> None:
        super().__init__(size_in, size_out, KERNEL, padding=KERNEL // 2)

    def forward(self, image: Shaped[Tensor, "B H H C"]) -> Float[Tensor, "B H H out"]:
        if cudnn.suits(image, self.weight):
            return cudnn.convolve(image, self.weight, self.bias)
        if torch._C._functorch.is_functorch_wrapped_tensor(self.weight):  # a stack of seeds
            return super().forward(image).relu()
        # Channels that are last stay so: the permuted view is what cuDNN calls channels_last.
        image = numbers(image)
        x = F.conv2d(image.permute(0, 3, 1, 2), self.weight, self.bias, padding=KERNEL // 2)
        return x.relu().permute(0, 2, 3, 1)


class Place(nn.Module):
    """Where a pixel is: a linear map of its distances from the four borders.

    Shapes: -> (size * size, width).
    """

    grid: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        along = torch.linspace(0.0, 1.0, size)
        down, right = torch.meshgrid(along, along, indexing="ij")
        grid = torch.stack([down, right, 1.0 - down, 1.0 - right], -1).flatten(0, 1)
        self.register_buffer("grid", grid, persistent=False)
        self.linear = nn.Linear(4, width)

    def forward(self) -> Float[Tensor, "n width"]:
        with torch.autocast(self.grid.device.type, enabled=False):
            place: Tensor = self.linear(self.grid)
        return place


class SlotEncoder(nn.Module):
    """Images to slots.

    Args:
        slots: M, number of slots.
        slot_dim: D, size of a slot.
        channels: C of the images.
        size: side of the images in pixels.
        width: channels of the convolutions, and size of a feature.
        iterations: of slot attention.
        hidden_dim: hidden units of slot attention's MLP.
        start: where slots start; only "learned" gives all images' slots the same order.

    Shapes: images (B, size, size, C), bytes or numbers from 0 to 1 -> (B, M, D).
    """

    def __init__(
        self,
        slots: int,
        slot_dim: int,
        *,
        channels: int = 3,
        size: int = 50,
        width: int = 64,
        iterations: int = 3,
        hidden_dim: int = 128,
        start: Start = "learned",
    ) -> None:
        super().__init__()
        for name, number in {"channels": channels, "size": size, "width": width}.items():
            if number < 1:
                raise ValueError(f"{name}: got {number}, expected at least 1")
        self.channels, self.size = channels, size
        sizes = (channels, *[width] * (LAYERS - 1))
        self.convolutions = nn.ModuleList(Conv(c, width) for c in sizes)
        self.place = Place(size, width)
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
        expected = (self.size, self.size, self.channels)
        if images.dim() != 4 or tuple(images.shape[1:]) != expected:
            sizes = ", ".join(map(str, expected))
            raise ValueError(f"images: got shape {tuple(images.shape)}, expected (B, {sizes})")
        x = images
        for convolution in self.convolutions:
            x = convolution(x)
        x = normalise(x.flatten(1, 2), self.place())
        x = linear(x, *after(self.norm, self.hidden)).relu()
        features: Tensor = self.out(x)
        return features

    def maps(self, images: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B M h w"]:
        """What each slot got of each pixel when it asked last."""
        attention: Tensor = self.attention(self.features(images), return_attention=True)[1]
        return attention.view(*attention.shape[:2], self.size, self.size)

    def forward(self, images: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B M D"]:
        slots: Tensor = self.attention(self.features(images))
        return slots
