"""From frames of a video to features, and from slots back to frames (bouncing balls).

The paper gives no sizes. The encoder is Slot Attention's (Locatello et al. 2020) with a first
stride of 2, the decoder the spatial broadcast decoder (Watters et al. 2019): each slot is drawn by
itself, with a mask, and the masks compete for each pixel. The background has a component of its
own, one learned colour and a mask logit of 0: without it the slots share out the empty background
among themselves, each an area around its object (docs/notes/balls.md).

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
GRID = 8
"""Side of the grid that a slot is broadcast to."""
FAINT = 0.1
"""Of the decoder's last layer at first: slots that drew noise would lose all to the background."""


class Place(nn.Module):
    """The position embedding: a linear map of column and row, both with mean 0 and variance 1.

    Slot Attention maps the distances from the borders, 0 to 1, whose mean outweighs what tells
    places apart: at first all slots attend to all places alike, and nothing makes them differ.

    Shapes: -> (size * size, width).
    """

    grid: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        along = torch.arange(size) - 0.5 * (size - 1)
        along = along / along.square().mean().sqrt()
        down, right = torch.meshgrid(along, along, indexing="ij")
        grid = torch.stack([right, down], -1).flatten(0, 1)
        self.register_buffer("grid", grid, persistent=False)
        self.linear = nn.Linear(2, width)

    def forward(self) -> Float[Tensor, "n width"]:
        with torch.autocast(self.grid.device.type, enabled=False):
            place: Tensor = self.linear(self.grid)
        return place


class FrameEncoder(nn.Module):
    """Four 5 × 5 convolutions, the first with stride 2; position embedding; an MLP for each pixel.

    Args:
        size: side of the frames in pixels; even.
        width: channels, and size of a feature; half of it in the first layer.

    Shapes: bytes (B, size, size, 3) -> (B, size² / 4, width).
    """

    def __init__(self, size: int, width: int = 64) -> None:
        super().__init__()
        require_int("width", width, at_least=2)
        if size % 2:
            raise ValueError(f"size: got {size}, expected an even number")
        channels = (3, width // 2, width, width, width)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, KERNEL, stride=1 if i else 2, padding=KERNEL // 2)
            for i, (a, b) in enumerate(itertools.pairwise(channels))
        )
        self.convolutions.apply(keep_variance)
        self.place = Place(size // 2, width)
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


def keep_variance(layer: nn.Module) -> None:
    """He's initialisation for convolutions, with the inputs that a pixel of the result has.

    torch's own shrinks what passes through four of them to a hundredth: position embeddings would
    hide the image from the slots, and all slots would be drawn alike.
    """
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        assert layer.bias is not None
        inputs = layer.in_channels * layer.weight[0, 0].numel()
        if isinstance(layer, nn.ConvTranspose2d):  # its stride spreads them
            inputs //= layer.stride[0] * layer.stride[1]
        nn.init.normal_(layer.weight, std=(2.0 / inputs) ** 0.5)
        nn.init.zeros_(layer.bias)


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

    A slot is copied to a grid of 8 × 8 cells, each with its position embedding; two layers work on
    every cell, and each of the next doubles the size.

    Args:
        slot_dim: D, size of a slot.
        size: side of the frames in pixels: 16, 32, 64, …
        width: channels.
        background: a component that is no slot, of one learned colour.
        upsampling: "deconv", transposed 5 × 5 convolutions and a last one at full size;
            "subpixel", convolutions at half the size that draw four pixels at once, with a third of
            the operations.

    Shapes: slots (B, M, D) -> images (B, 3, size, size), masks (B, M + 1, size, size).
    """

    def __init__(
        self,
        slot_dim: int,
        size: int,
        width: int = 64,
        *,
        background: bool = True,
        upsampling: Upsampling = "deconv",
    ) -> None:
        super().__init__()
        require_choice("upsampling", upsampling, get_args(Upsampling))
        self.size = size
        doublings = (size // GRID).bit_length() - 1
        if size != GRID * 2**doublings or not doublings:
            raise ValueError(f"size: got {size}, expected {2 * GRID}, {4 * GRID}, {8 * GRID}, …")
        self.place = Place(GRID, slot_dim)
        wide = max(width, slot_dim)
        # On the small grid depth costs nothing, and a disc at the place that a slot names needs it.
        layers: list[nn.Module] = [nn.Conv2d(slot_dim, wide, 1), nn.ReLU()]
        layers += [nn.Conv2d(wide, wide, 1), nn.ReLU()]
        channels = [wide] + [width] * doublings
        if upsampling == "deconv":
            for a, b in itertools.pairwise(channels):
                up = nn.ConvTranspose2d(a, b, KERNEL, stride=2, padding=2, output_padding=1)
                layers += [up, nn.ReLU()]
            layers.append(nn.Conv2d(width, 4, 3, padding=1))
        else:
            for a, b in itertools.pairwise(channels[:-1]):
                layers += [nn.Conv2d(a, 4 * b, 3, padding=1), Shuffle(), nn.ReLU()]
            layers += [nn.Conv2d(channels[-2], 4 * 4, KERNEL, padding=2), Shuffle()]
        self.layers = nn.Sequential(*layers)
        self.layers.apply(keep_variance)
        with torch.no_grad():  # all slots start faint
            next(x for x in reversed(layers) if isinstance(x, nn.Conv2d)).weight.mul_(FAINT)
        self.background = nn.Parameter(torch.zeros(3)) if background else None

    def forward(self, slots: Float[Tensor, "B M D"]) -> Drawing:
        b, m, d = slots.shape
        grid = slots.reshape(b * m, 1, d) + self.place()
        x = grid.view(b * m, GRID, GRID, d).permute(0, 3, 1, 2)  # channels_last
        colour, logit = self.layers(x).float().view(b, m, 4, self.size, self.size).split([3, 1], 2)
        if self.background is None:
            masks = logit.softmax(1)
            return Drawing((masks * colour).sum(1), masks.squeeze(2))
        masks = torch.cat([logit, torch.zeros_like(logit[:, :1])], 1).softmax(1)
        behind = masks[:, -1] * self.background[:, None, None]
        return Drawing((masks[:, :-1] * colour).sum(1) + behind, masks.squeeze(2))
