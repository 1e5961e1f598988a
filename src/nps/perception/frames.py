"""From frames of a video to features, and from slots back to frames (bouncing balls).

The paper gives no sizes. The encoder is Slot Attention's (Locatello et al. 2020) with strides of 2,
the decoder the spatial broadcast decoder (Watters et al. 2019): each slot is drawn by
itself, with a mask, and the masks compete for each pixel. The background has a component of its
own, one learned colour: without it the slots share out the empty background among themselves, each
an area around its object (docs/notes/balls.md).

Neither depends on the frames before, so all frames of a clip are one batch.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from nps.kernels.feature_norm import normalise_features
from nps.networks import Linear, linear
from nps.perception.slot_attention import fold_norm
from nps.rules.check import require_choice, require_int

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

Upsampling = Literal["deconv", "subpixel"]
KERNEL = 5
STRIDES = {2: (2, 1, 1, 1), 4: (2, 2, 1, 1)}
"""Of the four convolutions, for all of them together."""
GRID = 8
"""Side of the grid that a slot is broadcast to."""
HIDDEN_LAYERS = 2
"""Of the decoder, at least."""


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
        stride: pixels from one feature to the next, 2 or 4. Slots that choose among few features
            separate sooner: with balls 13 pixels wide, 4 is far ahead of 2 (docs/notes/balls.md).

    Shapes: bytes (B, size, size, 3) -> (B, (size / stride)², width).
    """

    def __init__(self, size: int, width: int = 64, *, stride: int = 4) -> None:
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
        self.place = Place(size // stride, width)
        self.norm = nn.LayerNorm(width)
        self.hidden, self.out = Linear(width, width), Linear(width, width)

    def forward(self, frames: UInt8[Tensor, "B H W 3"]) -> Float[Tensor, "B n width"]:
        x = (frames.to(self.out.weight.dtype) / 255.0).permute(0, 3, 1, 2)  # channels_last
        for convolution in self.convolutions:
            x = convolution(x).relu()
        x = normalise_features(x.permute(0, 2, 3, 1).flatten(1, 2), self.place())
        x = linear(x, *fold_norm(self.norm, self.hidden)).relu()
        features: Tensor = self.out(x)
        return features


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


class BroadcastDecoder(nn.Module):
    """Draw each slot by itself: colour and mask of every pixel; then add them up.

    A slot is copied to a grid of 8 × 8 cells, each with its position embedding; every layer of the
    next ones doubles the size. Small images get two hidden layers as well: with one, the error fell
    more slowly.

    Args:
        slot_dim: D, size of a slot.
        size: side of the frames in pixels: 16, 32, 64, …
        width: channels.
        background: a component that is no slot, of one learned colour. Its mask logit is the buffer
            `background_logit`, 0 unless a schedule changes it.
        upsampling: "deconv", transposed 5 × 5 convolutions and a last one at full size;
            "subpixel", transposed 4 × 4 convolutions up to half the size and a last one that draws
            four pixels at once, with a quarter of the operations.

    Shapes: slots (B, M, D) -> images (B, 3, size, size), masks (B, M + 1, size, size).
    """

    background_logit: Tensor

    def __init__(
        self,
        slot_dim: int,
        size: int,
        width: int = 64,
        *,
        background: bool = True,
        upsampling: Upsampling = "subpixel",
    ) -> None:
        super().__init__()
        require_choice("upsampling", upsampling, get_args(Upsampling))
        self.size = size
        doublings = (size // GRID).bit_length() - 1
        if size != GRID * 2**doublings or not doublings:
            raise ValueError(f"size: got {size}, expected {2 * GRID}, {4 * GRID}, {8 * GRID}, …")
        self.place = Place(GRID, slot_dim)
        ups = doublings if upsampling == "deconv" else doublings - 1
        layers: list[nn.Module] = []
        for i in range(max(ups, HIDDEN_LAYERS)):
            channels = width if i else slot_dim
            if i < HIDDEN_LAYERS - ups:  # a small image: depth that its size does not give
                layer: nn.Module = nn.Conv2d(channels, width, 3, padding=1)
            elif upsampling == "deconv":
                layer = nn.ConvTranspose2d(channels, width, KERNEL, 2, padding=2, output_padding=1)
            else:
                layer = nn.ConvTranspose2d(channels, width, 4, stride=2, padding=1)
            layers += [layer, nn.ReLU()]
        if upsampling == "deconv":
            layers.append(nn.Conv2d(width, 4, 3, padding=1))
        else:
            layers += [nn.Conv2d(width, 4 * 4, 3, padding=1), Shuffle()]
        self.layers = nn.Sequential(*layers)
        self.background = nn.Parameter(torch.zeros(3)) if background else None
        self.register_buffer("background_logit", torch.zeros(()) if background else None)

    def forward(self, slots: Float[Tensor, "B M D"]) -> Drawing:
        b, m, d = slots.shape
        grid = slots.reshape(b * m, 1, d) + self.place()
        x = grid.view(b * m, GRID, GRID, d).permute(0, 3, 1, 2)  # channels_last
        colour, logit = self.layers(x).float().view(b, m, 4, self.size, self.size).split([3, 1], 2)
        if self.background is None:
            masks = logit.softmax(1)
            return Drawing((masks * colour).sum(1), masks.squeeze(2))
        behind = self.background_logit.expand_as(logit[:, :1])
        masks = torch.cat([logit, behind], 1).softmax(1)
        background = masks[:, -1] * self.background[:, None, None]
        return Drawing((masks[:, :-1] * colour).sum(1) + background, masks.squeeze(2))
