"""Digits to a slot and back (appendix, table "convolutional encoder and decoder").

The table omits parts of the published program: layer normalisation without parameters after every
layer, a sigmoid at the start of the decoder, and replicated borders before its convolutions. The
last layer is a sigmoid there (the table says ReLU), as the binary cross-entropy requires; here it
is part of the loss, which is more accurate.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.kernels.enlarge import EnlargeConv
from nps.perception.conv import Conv

if TYPE_CHECKING:
    from jaxtyping import Float

SIZE = 64
"""Side of an image in pixels."""


def normalise(x: Float[Tensor, "B *rest"]) -> Float[Tensor, "B *rest"]:
    """Layer normalisation of each example as a whole, without parameters."""
    with torch.autocast(x.device.type, enabled=False):  # its sums are in float32 anyway
        return F.layer_norm(x, x.shape[1:])


class DigitEncoder(nn.Module):
    """Three 4 × 4 convolutions of stride 2 and a linear layer.

    Shapes: (B, 64, 64) -> (B, slot_dim).
    """

    def __init__(self, slot_dim: int) -> None:
        super().__init__()
        channels = (1, 16, 32, 64)
        self.convolutions = nn.ModuleList(
            Conv(c, d, 4, stride=2) for c, d in itertools.pairwise(channels)
        )
        self.linear = nn.Linear(6 * 6 * 64, slot_dim)

    def forward(self, image: Float[Tensor, "B 64 64"]) -> Float[Tensor, "B D"]:
        x = image.unsqueeze(-1)
        for convolution in self.convolutions:
            x = normalise(F.elu(convolution(x)))
        return normalise(F.elu(self.linear(x.flatten(1))))


class DigitDecoder(nn.Module):
    """A linear layer to 8 × 8, then three times: enlarge twofold and convolve.

    Shapes: (B, slot_dim) -> (B, 64, 64) logits; a sigmoid makes them grey levels.
    """

    def __init__(self, slot_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(slot_dim, 8 * 8 * 64)
        self.inner = nn.ModuleList([EnlargeConv(64, 32, 4, 2), EnlargeConv(32, 16, 4, 1)])
        self.last = EnlargeConv(16, 1, 3, 0)

    def forward(self, slot: Float[Tensor, "B D"]) -> Float[Tensor, "B 64 64"]:
        x = normalise(self.linear(normalise(slot.sigmoid())).relu())
        x = x.unflatten(1, (8, 8, 64))
        for layer in self.inner:
            x = normalise(layer(x).relu())
        logits: Tensor = self.last(x).squeeze(-1)
        return logits
