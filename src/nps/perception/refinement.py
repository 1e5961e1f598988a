"""Iterative refinement: slots that are corrected until what they draw looks like the picture.

IODINE (Greff et al. 2019), as OP3 uses it (Veerapaneni et al. 2019; paper, section 4.3). A slot is
drawn everywhere by `BroadcastConvs`; `Refinement` reads the picture, what was drawn and where that
is wrong, and says what the slot should have been. Sizes and initialisation are those of the
benchmark on which the paper's OP3 was scored (Weis et al. 2021).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.rules.check import require_int

if TYPE_CHECKING:
    from jaxtyping import Float

KERNEL = 5
CHANNELS = 32
IMAGE_INPUTS = 15
"""Channels that `Refinement` reads, without the two of the coordinates."""
VECTOR_INPUTS = 5
"""Vectors of the size of a latent that it reads."""


class Convs(nn.Sequential):
    """5 × 5 convolutions of unchanged size with ELU between them, biases zero at first.

    Args:
        channels: of the input, between the layers and of the output.
        last_elu: whether the last one is followed by ELU too.

    Shapes: (B, channels[0], S, S) -> (B, channels[-1], S, S).
    """

    def __init__(self, *channels: int, last_elu: bool) -> None:
        layers: list[nn.Module] = []
        for i, (size_in, size_out) in enumerate(pairwise(channels)):
            convolution = nn.Conv2d(size_in, size_out, KERNEL, padding=KERNEL // 2)
            nn.init.xavier_uniform_(convolution.weight)
            nn.init.constant_(convolution.bias, 0.0)  # type: ignore[arg-type]
            last = i == len(channels) - 2
            layers += [convolution] if last and not last_elu else [convolution, nn.ELU()]
        super().__init__(*layers)


class BroadcastConvs(nn.Module):
    """Spatial broadcast decoder: a slot in every pixel, with its coordinates, and convolutions.

    Within the first convolution a slot is the same everywhere, but for pixels near the edge, which
    see zeros beyond it: 5 × 5 kinds of pixels. Its part is one small product for each of these, not
    a convolution: the same up to rounding, for less than half of the decoder's operations.

    Args:
        slot_dim: D, size of a slot.
        size: side of the picture.
        channels: between the layers.

    Shapes: (B, D) -> (B, 4, size, size): colours and the logit of the mask.
    """

    coordinates: Tensor

    def __init__(self, slot_dim: int, size: int, channels: int = CHANNELS) -> None:
        super().__init__()
        require_int("size", size, at_least=KERNEL)
        self.slot_dim, self.size = slot_dim, size
        self.layers = Convs(slot_dim + 2, *4 * [channels], 4, last_elu=False)
        self.register_buffer("coordinates", coordinates(size), persistent=False)

    def forward(self, slots: Float[Tensor, "B D"]) -> Float[Tensor, "B 4 size size"]:
        first, *others = self.layers
        assert isinstance(first, nn.Conv2d)
        of_slot, of_place = first.weight.split([self.slot_dim, 2], 1)
        place = F.conv2d(self.coordinates, of_place, first.bias, padding=KERNEL // 2)
        x = spread(kinds(slots, of_slot), self.size) + place
        for layer in others:
            x = layer(x)
        return x


def kinds(
    slots: Float[Tensor, "B D"], weight: Float[Tensor, "C D 5 5"]
) -> Float[Tensor, "B C 5 5"]:
    """The convolution of a picture that is the same everywhere, for pixels in the first, second,
    any middle, last but one and last row and column."""
    here = torch.arange(KERNEL, device=weight.device)
    reaches = here[:, None] + here  # kind of row + row of the kernel, from KERNEL // 2 on inside
    inside = ((reaches >= KERNEL // 2) & (reaches <= KERNEL + KERNEL // 2 - 1)).to(weight.dtype)
    summed = torch.einsum("ai,cdij,bj->dcab", inside, weight, inside)
    each: Tensor = (slots @ summed.flatten(1)).unflatten(1, summed.shape[1:])
    return each


def spread(x: Float[Tensor, "B C 5 5"], size: int) -> Float[Tensor, "B C size size"]:
    """Repeat the middle row and column."""
    middle = KERNEL // 2
    for dim in (-2, -1):
        before, between, after = x.split([middle, 1, middle], dim)
        shape = list(between.shape)
        shape[dim] = size - 2 * middle
        x = torch.cat([before, between.expand(shape), after], dim)
    return x


def coordinates(size: int) -> Float[Tensor, "1 2 size size"]:
    """Column and row of each pixel, from -1 to 1."""
    along = torch.linspace(-1, 1, size)
    down, right = torch.meshgrid(along, along, indexing="ij")
    return torch.stack([right, down]).unsqueeze(0)


class Refinement(nn.Module):
    """What a latent should have been, from what was drawn of it; an LSTM remembers its corrections.

    Args:
        latent_dim: R, size of a latent.
        size: side of the picture.
        channels: of the first two convolutions.
        hidden_dim: size of the LSTM's state.

    Shapes: images (B, 15, size, size), vectors (B, 5R), state of two (B, hidden_dim)
        -> mean (B, R), spread (B, R), state.
    """

    coordinates: Tensor

    def __init__(
        self, latent_dim: int, size: int, *, channels: int = CHANNELS, hidden_dim: int = 128
    ) -> None:
        super().__init__()
        self.hidden_dim = hidden_dim
        self.register_buffer("coordinates", coordinates(size), persistent=False)
        self.convs = Convs(IMAGE_INPUTS + 2, channels, channels, latent_dim, last_elu=True)
        self.seen = nn.Linear(latent_dim, hidden_dim)
        for parameter in self.seen.parameters():
            nn.init.uniform_(parameter, -1e-4, 1e-4)
        self.lstm = nn.LSTMCell(hidden_dim + VECTOR_INPUTS * latent_dim, hidden_dim)
        self.mean = nn.Linear(hidden_dim, latent_dim)
        self.spread = nn.Linear(hidden_dim, latent_dim)

    def forward(
        self,
        images: Float[Tensor, "B 15 size size"],
        vectors: Float[Tensor, "B 5R"],
        state: tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]],
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        place = self.coordinates.expand(len(images), -1, -1, -1)
        seen = self.convs(torch.cat([images, place], 1)).mean((-2, -1))
        seen = F.elu(self.seen(seen)).to(vectors.dtype)
        hidden, cell = self.lstm(torch.cat([seen, vectors], -1), state)
        return self.mean(hidden), self.spread(hidden), (hidden, cell)


class Standardise(nn.Module):
    """Subtract the mean of each example and divide by its standard deviation; then scale and shift
    each channel by learned numbers.

    Args:
        channels: size of dimension 1.
        uniform: whether scales are drawn from 0 to 1 at first, as OP3 draws those of images.
        epsilon: added to the standard deviation.
    """

    def __init__(self, channels: int, *, uniform: bool = False, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.scale = nn.Parameter(torch.rand(channels) if uniform else torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Float[Tensor, "B C *rest"]) -> Float[Tensor, "B C *rest"]:
        dims = tuple(range(1, x.dim()))
        spread, mean = torch.std_mean(x, dims, keepdim=True)
        shape = (-1, *(x.dim() - 2) * [1])
        new: Tensor = (x - mean) / (spread + self.epsilon) * self.scale.view(shape)
        return new + self.shift.view(shape)
