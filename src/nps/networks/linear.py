"""A product and a bias that stay in autocast's type in a stack of models, too.

Autocast makes bf16 of a whole linear layer. In vmap the layer is a product and an addition, of
which autocast knows the product alone, and bf16 with a bias in float32 is float32: twice the bytes
for everything that follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from jaxtyping import Float


def linear(
    x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"], bias: Float[Tensor, "out"]
) -> Float[Tensor, "*batch out"]:
    device = x.device.type
    if torch.is_autocast_enabled(device):
        bias = bias.to(torch.get_autocast_dtype(device))
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """torch's layer, by `linear`."""

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        return linear(x, self.weight, self.bias)
