"""C-SWM's encoder from an image to slots: a convolutional extractor and a shared MLP.

The extractor yields a map in [0, 1] for each slot, the MLP turns a map into a slot. Kipf et al.,
"Contrastive Learning of Structured World Models" (2020), is the model of the paper's section 4.3,
where NPS replaces its GNN.

Batch normalisation is C-SWM's, and torch's: a training step normalises with the statistics of its
batch and updates running ones, which evaluation uses. These are buffers, one set for each seed of a
stack, updated in place by a captured step like the weights, and saved with them. With several
processes each normalises its share of the batch, and those of the first process are saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.kernels.batch_norm import batch_norm
from nps.kernels.readout import readout
from nps.networks import NormalisedMLP
from nps.perception.conv import XavierConv
from nps.perception.images import image_size, require_images

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

Extractor = Literal["small", "medium", "large"]
Maps = Literal["sigmoid", "contrast"]
SHRINKS = {"small": 10, "medium": 5, "large": 1}
"""Side of the image divided by the side of a map, rounded up."""
RELU, LEAKY = 0.0, 0.01
"""Slope of the activation below zero."""
MOMENTUM = 0.1
"""Share of a batch's statistics in the new running ones."""


class Norm(nn.Module):
    """Batch normalisation with channels last, and the activation after it.

    Parameters and buffers are those of `nn.BatchNorm2d`.

    Args:
        channels: C.
        slope: of the activation below zero: 0 for ReLU.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, channels: int, slope: float) -> None:
        super().__init__()
        self.slope, self.momentum = slope, MOMENTUM
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, image: Float[Tensor, "B H W C"]) -> Float[Tensor, "B H W C"]:
        given = None if self.training else (self.running_mean, self.running_var)
        result, mean, variance = batch_norm(image, self.weight, self.bias, given, slope=self.slope)
        if self.training:
            self.update_running(mean, variance, image.shape[:-1].numel())
        return result

    @torch.no_grad()
    def update_running(
        self, mean: Float[Tensor, "C"], variance: Float[Tensor, "C"], count: int
    ) -> None:
        """Move the running statistics towards those of a batch with `count` numbers per channel."""
        self.running_mean.mul_(1 - self.momentum).add_(mean, alpha=self.momentum)
        unbiased = self.momentum * count / (count - 1)
        self.running_var.mul_(1 - self.momentum).add_(variance, alpha=unbiased)
        self.num_batches_tracked.add_(1)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, slope={self.slope}"


class Medium(nn.Sequential):
    """C-SWM's medium extractor, in training with its norm and last convolution as one function."""

    def forward(self, image: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B h w M"]:
        first, norm, _, second, sigmoid = self
        x: Tensor = first(image)
        assert isinstance(norm, Norm)
        assert isinstance(second, XavierConv)
        assert second.bias is not None
        if norm.training:
            parameters = norm.weight, norm.bias, second.weight, second.bias
            scores, mean, variance = readout(x, *parameters, slope=norm.slope)
            norm.update_running(mean, variance, x.shape[:-1].numel())
        else:
            scores = second(norm(x))
        maps: Tensor = sigmoid(scores)
        return maps


def extractor(kind: Extractor, channels: int, slots: int, width: int) -> nn.Sequential:
    """The layers from an image to the maps of all slots, with channels last."""
    if kind == "small":  # 2D shapes
        layers = conv_and_norm(channels, width, 10, RELU, stride=10)
        return nn.Sequential(*layers, XavierConv(width, slots, 1), nn.Sigmoid())
    if kind == "medium":  # Atari, three bodies, and Ke et al.'s blocks
        layers = conv_and_norm(channels, width, 9, LEAKY, padding=4)
        return Medium(*layers, XavierConv(width, slots, 5, stride=5), nn.Sigmoid())
    layers = []  # large: 3D cubes
    for size_in in (channels, width, width):
        layers += conv_and_norm(size_in, width, 3, RELU, padding=1)
    return nn.Sequential(*layers, XavierConv(width, slots, 3, padding=1), nn.Sigmoid())


def contrast(maps: Float[Tensor, "B h w M"]) -> Float[Tensor, "B h w M"]:
    """The distance of each place from the mean of its map.

    A map may show its object light on dark or dark on light, depending on its initial weights. The
    shared encoder then gives two slots at the same place different numbers, and no rule can
    compare them to find out whether they are neighbours.
    """
    return (maps - maps.mean((1, 2), keepdim=True)).abs()


def conv_and_norm(
    size_in: int, size_out: int, kernel: int, slope: float, **options: int
) -> list[nn.Module]:
    """A convolution, batch normalisation and its activation.

    The convolution lacks the bias that C-SWM gives it: the normalisation subtracts it again. Its
    gradient is only rounding, which Adam would scale up to steps of full size.
    """
    conv = XavierConv(size_in, size_out, kernel, bias=False, **options)  # type: ignore[arg-type]
    # A placeholder for the activation, which Norm includes: saved weights are named by position.
    return [conv, Norm(size_out, slope), nn.Identity()]


class ObjectEncoder(nn.Module):
    """Images to slots.

    Args:
        kind: C-SWM's "small", "medium" or "large" extractor.
        slots: M, number of slots.
        slot_dim: D, size of a slot.
        channels: C of the images.
        size: side of the images in pixels, or (height, width).
        hidden_dim: width of the encoder (C-SWM: 512).
        width: channels of the extractor (C-SWM: a sixteenth of the encoder's width).
        maps: input of the encoder: the maps themselves (C-SWM), or their `contrast`.

    Shapes: images (B, H, W, C), as bytes or as numbers from 0 to 1 -> (B, M, D). Sides that are not
    a multiple of the extractor's stride (10, 5 or 1) are padded with black at the bottom and right.
    """

    without_contrast = False
    """In training, the encoder sees the maps without contrast (an optional first phase). Light and
    dark distinguish two objects in one map, until it shows only one."""

    def __init__(
        self,
        kind: Extractor,
        slots: int,
        slot_dim: int,
        *,
        channels: int = 3,
        size: int | tuple[int, int] = 50,
        hidden_dim: int = 512,
        width: int = 32,
        maps: Maps = "sigmoid",
    ) -> None:
        super().__init__()
        if kind not in get_args(Extractor):
            raise ValueError(f"kind: got {kind!r}, expected one of {', '.join(SHRINKS)}")
        if maps not in get_args(Maps):
            raise ValueError(f"maps: got {maps!r}, expected one of {', '.join(get_args(Maps))}")
        self.channels, self.size, self.contrasted = channels, image_size(size), maps == "contrast"
        self.extractor = extractor(kind, channels, slots, width)
        self.missing = tuple(-side % SHRINKS[kind] for side in self.size)
        rows, columns = (-(-side // SHRINKS[kind]) for side in self.size)
        self.encoder = NormalisedMLP(rows * columns, hidden_dim, slot_dim)

    def maps(self, images: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B M h w"]:
        """The input of each slot's encoder."""
        require_images(images, (*self.size, self.channels))
        if any(self.missing):
            below, right = self.missing
            images = F.pad(images, (0, 0, 0, right, 0, below))
        maps: Tensor = self.extractor(images)
        if self.contrasted and not (self.without_contrast and self.training):
            maps = contrast(maps)
        return maps.permute(0, 3, 1, 2)

    def forward(self, images: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B M D"]:
        maps = self.maps(images)
        # One matrix: as a batch of matrices, a stack of seeds would multiply them image by image.
        rows: Tensor = self.encoder(maps.flatten(2).flatten(0, 1))
        slots: Tensor = rows.unflatten(0, maps.shape[:2])
        return slots
