"""The backbone of RPIN: a stacked hourglass network (Newell et al. 2016) with one stack of depth 3.

It looks at a picture at four resolutions, from 1/4 to 1/32, and adds up what it finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.perception.extractors import RELU, Norm
from nps.rules.check import require_int

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

STRIDE = 4
"""Pixels from one feature to the next."""
DEPTH = 3


class Bottleneck(nn.Module):
    """Batch norm and ReLU before each of three convolutions, around which the input is added.

    The convolutions have no biases. RPIN's have, but in all of this network a number added to a
    channel is subtracted by the next batch norm.

    Shapes: (B, size_in, H, W) -> (B, size_out, H, W).
    """

    def __init__(self, size_in: int, size_out: int) -> None:
        super().__init__()
        middle = size_out // 2
        self.norms = nn.ModuleList(NormReLU(size) for size in (size_in, middle, middle))
        self.convolutions = nn.ModuleList(
            [
                nn.Conv2d(size_in, middle, 1, bias=False),
                nn.Conv2d(middle, middle, 3, padding=1, bias=False),
                nn.Conv2d(middle, size_out, 1, bias=False),
            ]
        )
        same = size_in == size_out
        self.skip = nn.Identity() if same else nn.Conv2d(size_in, size_out, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        new = x
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            new = convolution(norm(new))
        added: Tensor = self.skip(x) + new
        return added


class NormReLU(Norm):
    """Batch norm and ReLU with channels second, which lie last in memory.

    Shapes: (B, C, H, W) -> (B, C, H, W).
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, RELU)

    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image.movedim(1, -1)).movedim(-1, 1)


class Level(nn.Module):
    """One resolution of the hourglass, with all below it.

    Shapes: (B, width, H, W) -> (B, width, H, W).
    """

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.here, self.down, self.up = (Bottleneck(width, width) for _ in range(3))
        self.below = Level(width, depth - 1) if depth > 1 else Bottleneck(width, width)

    def forward(self, x: Tensor) -> Tensor:
        below = self.up(self.below(self.down(F.max_pool2d(x, 2))))
        with torch.autocast(x.device.type, enabled=False):  # which would copy numbers as float32
            enlarged = F.interpolate(below, size=x.shape[-2:], mode="nearest")
        new: Tensor = self.here(x) + enlarged
        return new


class Hourglass(nn.Module):
    """Features of pictures, one for each 4 × 4 pixels.

    Args:
        width: channels of the features (RPIN: 256).

    Shapes: bytes (B, H, W, 3) -> (B, width, H / 4, W / 4).
    """

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        require_int("width", width, at_least=8)
        quarter, half = width // 4, width // 2
        self.width = width
        self.first = nn.Conv2d(3, quarter, 7, stride=2, padding=3, bias=False)
        self.norm = NormReLU(quarter)
        self.fine = Bottleneck(quarter, half)
        self.coarse = nn.Sequential(Bottleneck(half, width), Bottleneck(width, width))
        self.hourglass = Level(width, DEPTH)
        self.last = nn.Sequential(
            Bottleneck(width, width),
            nn.Conv2d(width, width, 1, bias=False),
            NormReLU(width),
            nn.Conv2d(width, width, 1),
        )

    def forward(self, images: UInt8[Tensor, "B H W 3"]) -> Float[Tensor, "B width H/4 W/4"]:
        x = (images.to(self.first.weight.dtype) / 127.5 - 1.0).permute(0, 3, 1, 2)  # channels_last
        x = self.fine(self.norm(self.first(x)))
        x = self.coarse(F.max_pool2d(x, 2))
        features: Tensor = self.last(self.hourglass(x))
        return features


def crop(
    features: Float[Tensor, "B C H W"],
    boxes: Float[Tensor, "B M 4"],
    size: int = 7,
    samples: int = 2,
) -> Float[Tensor, "B M C size size"]:
    """RoIAlign: features inside of boxes, on a grid of `size` × `size` (He et al. 2017).

    Each cell of the grid is the mean of `samples` × `samples` points, between which features are
    interpolated. Equal to torchvision's `roi_align(..., aligned=False)`, as RPIN uses it: feature i
    lies at i, not at i + 1/2. Points outside of the features are zero.

    Args:
        features: of B pictures.
        boxes: left, upper, right and lower edges, in sides of the picture.
        size: cells along each side.
        samples: points along each side of a cell.
    """
    height, width = features.shape[-2:]
    columns = _weights(boxes[..., 0], boxes[..., 2], width, size, samples)
    rows = _weights(boxes[..., 1], boxes[..., 3], height, size, samples)
    # A box is a product of its columns and rows, and so is its interpolation. Channels come last.
    m, lines = columns.shape[1], features.movedim(1, -1)  # (B, H, W, C)
    across = columns.flatten(1, 2).unsqueeze(1) @ lines  # (B, H, M * size, C)
    across = across.unflatten(2, (m, size)).movedim(1, 2).flatten(-2)  # (B, M, H, size * C)
    cells: Tensor = (rows @ across).unflatten(-1, (size, -1)).movedim(-1, 2)
    return cells


def _weights(
    start: Float[Tensor, "B M"], end: Float[Tensor, "B M"], length: int, size: int, samples: int
) -> Float[Tensor, "B M size length"]:
    """How much each of `length` features in a line counts in each cell of a box."""
    start, end = start * length, end * length
    extent = (end - start).clamp(min=1.0)
    along = (torch.arange(size * samples, device=start.device) + 0.5) / (size * samples)
    points = start.unsqueeze(-1) + extent.unsqueeze(-1) * along
    inside = (points >= -1.0) & (points <= length)
    from_features = points.clamp(0, length - 1).unsqueeze(-1) - torch.arange(
        length, device=start.device
    )
    weights = (1.0 - from_features.abs()).relu() * inside.unsqueeze(-1)
    cells: Tensor = weights.unflatten(-2, (size, samples)).mean(-2)
    return cells
