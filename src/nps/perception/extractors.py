"""C-SWM's way from an image to slots: a convolutional extractor and a shared encoder.

The extractor gives a map in [0, 1] for each slot, the encoder makes a slot of a map. Kipf et al.,
"Contrastive Learning of Structured World Models" (2020), is the model of the paper's section 4.3,
where NPS takes the place of its GNN.

Batch normalisation is C-SWM's, as torch's: a training step normalises with the statistics of
its batch and moves running ones along, evaluation uses these. They are buffers, one set a seed in a
stack, changed in place by a captured step like the weights, and saved with them. With several
processes each normalises its share of the batch, and the first one's statistics are saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.networks import NormalisedMLP
from nps.perception import cudnn, readout
from nps.perception.convolution import convolve, numbers
from nps.perception.normalise import normalise

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

Extractor = Literal["small", "medium", "large"]
Maps = Literal["sigmoid", "contrast"]
SHRINKS = {"small": 10, "medium": 5, "large": 1}
"""How much smaller a map is than the image."""
RELU, LEAKY = 0.0, 0.01
"""Slopes of the activations below zero."""
MOMENTUM = 0.1
"""How far a batch's statistics move the running ones."""


class Conv(nn.Conv2d):
    """torch's convolution with the channels last, initialised as C-SWM does; bytes are numbers."""

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, image: Shaped[Tensor, "B H H C"]) -> Float[Tensor, "B H2 H2 out"]:
        around = int(self.padding[0])
        same = 2 * around + 1 == self.kernel_size[0] and self.stride[0] == 1
        if same and self.bias is None and cudnn.suits(image, self.weight):
            return cudnn.convolve(image, self.weight)
        image = numbers(image)
        bias = self.weight.new_zeros(self.out_channels) if self.bias is None else self.bias
        if around:  # with zeros, where `convolve` would replicate the border
            image = F.pad(image, (0, 0, around, around, around, around))
        return convolve(image, self.weight[None, None], bias, stride=self.stride[0])


class Norm(nn.Module):
    """Batch normalisation with the channels last, and the activation after it.

    What it keeps, and how, is as in torch's `BatchNorm2d`.

    Args:
        channels: C.
        slope: of the activation below zero: 0 is ReLU.
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
        result, mean, variance = normalise(image, self.weight, self.bias, given, slope=self.slope)
        if self.training:
            self.follow(mean, variance, image.shape[:-1].numel())
        return result

    @torch.no_grad()
    def follow(self, mean: Float[Tensor, "C"], variance: Float[Tensor, "C"], count: int) -> None:
        """Move the running statistics towards a batch's, of `count` numbers a channel."""
        self.running_mean.mul_(1 - self.momentum).add_(mean, alpha=self.momentum)
        unbiased = self.momentum * count / (count - 1)
        self.running_var.mul_(1 - self.momentum).add_(variance, alpha=unbiased)
        self.num_batches_tracked.add_(1)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, slope={self.slope}"


class Medium(nn.Sequential):
    """C-SWM's medium extractor: its layers, of which large ones in training are taken as one."""

    def forward(self, image: Shaped[Tensor, "B H H C"]) -> Float[Tensor, "B h h M"]:
        first, norm, _, second, sigmoid = self
        x: Tensor = first(image)
        assert isinstance(norm, Norm)
        assert isinstance(second, Conv)
        assert second.bias is not None
        if norm.training and readout.suits(x, second.weight):
            weights = norm.weight, norm.bias, second.weight, second.bias
            scores, mean, variance = readout.read_out(x, *weights, slope=norm.slope)
            norm.follow(mean, variance, x.shape[:-1].numel())
        else:
            scores = second(norm(x))
        maps: Tensor = sigmoid(scores)
        return maps


def extractor(kind: Extractor, channels: int, slots: int, width: int) -> nn.Sequential:
    """The layers from an image to the maps of all slots, channels last."""
    if kind == "small":  # 2D shapes
        layers = normalised(channels, width, 10, RELU, stride=10)
        return nn.Sequential(*layers, Conv(width, slots, 1), nn.Sigmoid())
    if kind == "medium":  # Atari, three bodies, and Ke et al.'s blocks
        layers = normalised(channels, width, 9, LEAKY, padding=4)
        return Medium(*layers, Conv(width, slots, 5, stride=5), nn.Sigmoid())
    layers = []  # large: 3D cubes
    for size_in in (channels, width, width):
        layers += normalised(size_in, width, 3, RELU, padding=1)
    return nn.Sequential(*layers, Conv(width, slots, 3, padding=1), nn.Sigmoid())


def contrast(maps: Float[Tensor, "B h w M"]) -> Float[Tensor, "B h w M"]:
    """How much each place differs from the mean of its map.

    A map may show its object light on dark or dark on light, whichever its first weights were
    nearer to. The shared encoder then gives two slots at the same place different numbers, and no
    rule can compare them: is that one beside me?
    """
    return (maps - maps.mean((1, 2), keepdim=True)).abs()


def normalised(
    size_in: int, size_out: int, kernel: int, slope: float, **options: int
) -> list[nn.Module]:
    """A convolution, without the bias that C-SWM has, batch normalisation and its activation.

    The mean that is taken off takes any bias with it: its gradient is rounding alone, of which Adam
    makes steps as large as any other's.
    """
    conv = Conv(size_in, size_out, kernel, bias=False, **options)  # type: ignore[arg-type]
    # The third stands where the activation had: saved weights are named by their layer's number.
    return [conv, Norm(size_out, slope), nn.Identity()]


class ObjectEncoder(nn.Module):
    """Images to slots.

    Args:
        kind: C-SWM's "small", "medium" or "large" extractor.
        slots: M, number of slots.
        slot_dim: D, size of a slot.
        channels: C of the images.
        size: side of the images in pixels.
        hidden_dim: width of the encoder (C-SWM: 512).
        width: channels of the extractor (C-SWM: a sixteenth of the encoder's width).
        maps: what the encoder is shown: the maps (C-SWM), or their `contrast`.

    Shapes: images (B, size, size, C), bytes or numbers from 0 to 1 -> (B, M, D).
    """

    plain = False
    """In training, the maps as they are, with or without contrast: a first phase, if a task wants
    one. Light and dark tell two objects of one map apart, until it shows one alone."""

    def __init__(
        self,
        kind: Extractor,
        slots: int,
        slot_dim: int,
        *,
        channels: int = 3,
        size: int = 50,
        hidden_dim: int = 512,
        width: int = 32,
        maps: Maps = "sigmoid",
    ) -> None:
        super().__init__()
        if kind not in get_args(Extractor):
            raise ValueError(f"kind: got {kind!r}, expected one of {', '.join(SHRINKS)}")
        if maps not in get_args(Maps):
            raise ValueError(f"maps: got {maps!r}, expected one of {', '.join(get_args(Maps))}")
        if size % SHRINKS[kind] or size < 1:
            raise ValueError(f"size: got {size}, expected a multiple of {SHRINKS[kind]} ({kind})")
        self.channels, self.size, self.contrasted = channels, size, maps == "contrast"
        self.extractor = extractor(kind, channels, slots, width)
        places = (size // SHRINKS[kind]) ** 2
        self.encoder = NormalisedMLP(places, hidden_dim, slot_dim)

    def maps(self, images: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B M h w"]:
        """What each slot's encoder is shown."""
        expected = (self.size, self.size, self.channels)
        if images.dim() != 4 or tuple(images.shape[1:]) != expected:
            sizes = ", ".join(map(str, expected))
            raise ValueError(f"images: got shape {tuple(images.shape)}, expected (B, {sizes})")
        maps: Tensor = self.extractor(images)
        if self.contrasted and not (self.plain and self.training):
            maps = contrast(maps)
        return maps.permute(0, 3, 1, 2)

    def forward(self, images: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B M D"]:
        maps = self.maps(images)
        # Rows in one piece: in a stack of seeds, a product for each image would be made of them.
        rows: Tensor = self.encoder(maps.flatten(2).flatten(0, 1))
        slots: Tensor = rows.unflatten(0, maps.shape[:2])
        return slots
