"""From frames of a video to features, and from slots back to frames (bouncing balls).

The paper gives no sizes. The encoder is Slot Attention's (Locatello et al. 2020) with strides of 2,
the decoder the spatial broadcast decoder (Watters et al. 2019): each slot is drawn by
itself, with a mask, and the masks compete for each pixel. The background has a component of its
own, one learned colour: without it the slots share out the empty background among themselves, each
an area around its object (docs/notes/balls.md). Slots may have a place (perception/places.py).

Neither depends on the frames before, so all frames of a clip are one batch.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from nps.kernels.feature_norm import normalise_features
from nps.networks import Linear, linear
from nps.perception.places import PLACE, cell_centres, square_distances
from nps.perception.slot_attention import fold_norm
from nps.rules.check import require_int

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

KERNEL = 5
STRIDES = {2: (2, 1, 1, 1), 4: (2, 2, 1, 1)}
"""Of the four convolutions, for all of them together."""
GRID = 8
"""Side of the grid that a slot is broadcast to."""
HIDDEN_LAYERS = 2
"""Of the decoder, at least."""
WINDOW = 3.0
"""Mask logit at the place of a slot, at first."""


class Place(nn.Module):
    """The position embedding: a linear map of column and row and of their negatives, -1 to 1.

    Shapes: -> (size * size, width).
    """

    grid: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        along = torch.linspace(-1.0, 1.0, size)
        down, right = torch.meshgrid(along, along, indexing="ij")
        grid = torch.stack([right, down, -right, -down], -1).flatten(0, 1)
        self.register_buffer("grid", grid, persistent=False)
        self.linear = nn.Linear(4, width)

    def forward(self) -> Float[Tensor, "n width"]:
        with torch.autocast(self.grid.device.type, enabled=False):
            place: Tensor = self.linear(self.grid)
        return place


class FrameEncoder(nn.Module):
    """Four 5 × 5 convolutions, the first ones with stride 2; position embedding; an MLP for each
    feature.

    Args:
        size: side of the frames in pixels.
        width: channels, and size of a feature; half of it in the first layer.
        stride: pixels from one feature to the next, 2 or 4.
        position: add a position embedding; slots with a place need none.

    Shapes: bytes (B, size, size, 3) -> (B, (size / stride)², width).
    """

    def __init__(
        self, size: int, width: int = 64, *, stride: int = 4, position: bool = True
    ) -> None:
        super().__init__()
        require_int("width", width, at_least=2)
        if stride not in STRIDES:
            raise ValueError(f"stride: got {stride}, expected 2 or 4")
        if size % stride:
            raise ValueError(f"size: got {size}, expected a multiple of stride = {stride}")
        channels = itertools.pairwise((3, width // 2, width, width, width))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, KERNEL, stride=step, padding=KERNEL // 2)
            for (a, b), step in zip(channels, STRIDES[stride], strict=True)
        )
        self.place = Place(size // stride, width) if position else None
        self.norm = nn.LayerNorm(width)
        self.hidden, self.out = Linear(width, width), Linear(width, width)

    def forward(self, frames: UInt8[Tensor, "B H W 3"]) -> Float[Tensor, "B n width"]:
        x = (frames.to(self.out.weight.dtype) / 255.0).permute(0, 3, 1, 2)  # channels_last
        for convolution in self.convolutions:
            x = convolution(x).relu()
        place = None if self.place is None else self.place()
        x = normalise_features(x.permute(0, 2, 3, 1).flatten(1, 2), place)
        x = linear(x, *fold_norm(self.norm, self.hidden)).relu()
        features: Tensor = self.out(x)
        return features


class PlaceAround(nn.Module):
    """The position embedding of a grid as seen from places: a linear map of the distance in columns
    and rows, in extents, and of its squares.

    Shapes: places (B, M, 2) -> (B, M, size * size, width).
    """

    grid: Tensor

    def __init__(self, size: int, width: int, extent: float) -> None:
        super().__init__()
        self.extent = extent
        self.register_buffer("grid", cell_centres(size), persistent=False)
        self.linear = nn.Linear(4, width)

    def forward(self, places: Float[Tensor, "B M 2"]) -> Float[Tensor, "B M n width"]:
        with torch.autocast(places.device.type, enabled=False):
            away = (self.grid - places.unsqueeze(-2)) / self.extent
            place: Tensor = self.linear(torch.cat([away, away.square()], -1))
        return place


class Window(nn.Module):
    """What a slot's mask starts from: more than the background around its place, less elsewhere.

    Shapes: places (B, M, 2) -> (B, M, 1, size, size).
    """

    grid: Tensor

    def __init__(self, size: int, extent: float) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("grid", cell_centres(size), persistent=False)
        self.log_extent = nn.Parameter(torch.tensor(extent).log())

    def forward(self, places: Float[Tensor, "B M 2"]) -> Float[Tensor, "B M 1 H W"]:
        away = square_distances(places, self.grid) * (-2.0 * self.log_extent).exp()
        return WINDOW * (1.0 - away.view(*places.shape[:2], 1, self.size, self.size))


class Shuffle(nn.Module):
    """Four pixels from the channels of one, as nn.PixelShuffle, which loses the layout of channels
    last, and with it cuDNN's fast kernels.

    Shapes: (B, 4 C, H, W) -> (B, C, 2 H, 2 W).
    """

    def forward(self, x: Float[Tensor, "B 4*C H W"]) -> Float[Tensor, "B C 2*H 2*W"]:
        b, _, height, width = x.shape
        pixels = x.permute(0, 2, 3, 1).reshape(b, height, width, 2, 2, -1).transpose(2, 3)
        return pixels.reshape(b, 2 * height, 2 * width, -1).permute(0, 3, 1, 2)


class Drawing(NamedTuple):
    """Frames, and which component of the scene each pixel belongs to."""

    images: Float[Tensor, "B 3 H W"]
    masks: Float[Tensor, "B K H W"]
    """They sum to 1 over the K components: the slots and, last, the background if there is one."""
    disagreement: Float[Tensor, "B H W"]
    """How far the colours of a pixel's components are from their mean: a variance, summed over the
    channels. Without a price on it, a slot draws its object half transparent and twice as bright.
    """


def compose(
    colour: Float[Tensor, "B M 3 H W"],
    logit: Float[Tensor, "B M 1 H W"],
    background: Float[Tensor, "3"] | None,
) -> Drawing:
    """Add up what slots draw and, if there is one, a background of one colour and mask logit 0."""
    if background is not None:
        logit = torch.cat([logit, torch.zeros_like(logit[:, :1])], 1)
        behind = background.view(1, 1, 3, 1, 1).expand_as(colour[:, :1])
        colour = torch.cat([colour, behind], 1)
    masks = logit.softmax(1)
    images = (masks * colour).sum(1)
    power = (masks.squeeze(2) * colour.square().sum(2)).sum(1)
    return Drawing(images, masks.squeeze(2), power - images.square().sum(1))


class BroadcastDecoder(nn.Module):
    """Draw each slot by itself: colour and mask of every pixel; then add them up.

    A slot is copied to a grid of 8 × 8 cells, each with its position embedding. Transposed 4 × 4
    convolutions double the size up to half of the image, and the last layer draws four pixels at
    once. Small images get two hidden layers as well: with one, the error fell more slowly.

    Args:
        slot_dim: D, size of a slot.
        size: side of the frames in pixels: 16, 32, 64, …
        width: channels.
        background: a component that is no slot, of one learned colour and mask logit 0.
        extent: of slots with a place, about the radius of an object; None: slots without.

    Shapes: slots (B, M, D) -> images (B, 3, size, size), masks (B, M + 1, size, size).
    """

    def __init__(
        self,
        slot_dim: int,
        size: int,
        width: int = 64,
        *,
        background: bool = True,
        extent: float | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        doublings = (size // GRID).bit_length() - 1
        if size != GRID * 2**doublings or not doublings:
            raise ValueError(f"size: got {size}, expected {2 * GRID}, {4 * GRID}, {8 * GRID}, …")
        self.place: Place | PlaceAround
        if extent is None:
            state, self.place, self.window = slot_dim, Place(GRID, slot_dim), None
        else:
            state = slot_dim - PLACE
            self.place, self.window = PlaceAround(GRID, state, extent), Window(size, extent)
        ups = doublings - 1
        layers: list[nn.Module] = []
        for i in range(max(ups, HIDDEN_LAYERS)):
            channels = width if i else state
            if i < HIDDEN_LAYERS - ups:  # a small image: depth that its size does not give
                layers.append(nn.Conv2d(channels, width, 3, padding=1))
            else:
                layers.append(nn.ConvTranspose2d(channels, width, 4, stride=2, padding=1))
            layers.append(nn.ReLU())
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, 4 * 4, 3, padding=1), Shuffle())
        self.background = nn.Parameter(torch.zeros(3)) if background else None

    def forward(self, slots: Float[Tensor, "B M D"]) -> Drawing:
        b, m, _ = slots.shape
        colour, logit = (
            self.layers(self._spread(slots)).float().unflatten(0, (b, m)).split([3, 1], 2)
        )
        if self.window is not None:
            logit = logit + self.window(slots[..., :PLACE])
        return compose(colour, logit, self.background)

    def _spread(self, slots: Float[Tensor, "B M D"]) -> Float[Tensor, "B*M D 8 8"]:
        """Each slot in all cells of the grid, channels last."""
        if isinstance(self.place, Place):
            cells: Tensor = slots.unsqueeze(2) + self.place()
        else:
            cells = slots[..., PLACE:].unsqueeze(2) + self.place(slots[..., :PLACE])
        return cells.reshape(-1, GRID, GRID, cells.shape[-1]).permute(0, 3, 1, 2)
