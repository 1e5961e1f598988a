"""Small networks that several models share: C-SWM's MLP, and a linear layer for stacks in bf16."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.kernels.norm_relu_sum import norm_relu_sum

if TYPE_CHECKING:
    from jaxtyping import Float


def linear(
    x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"], bias: Float[Tensor, "out"]
) -> Float[Tensor, "*batch out"]:
    """`F.linear` that stays in autocast's type inside vmap too.

    Under vmap torch computes a linear layer as a product and an addition. Autocast casts only the
    product, and the float32 bias then promotes the sum to float32: twice the bytes from
    there on, and 1.31 times the time of a step of `blocks-gnn`.
    """
    device = x.device.type
    if torch.is_autocast_enabled(device):
        bias = bias.to(torch.get_autocast_dtype(device))
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """`nn.Linear` computed by `linear`."""

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        return linear(x, self.weight, self.bias)


class NormalisedMLP(nn.Sequential):
    """The network that C-SWM uses everywhere: from maps to slots, on edges and on nodes.

    Linear, ReLU, Linear, LayerNorm, ReLU, Linear. In a stack under autocast only the output is
    float32: it is small, and may be a slot.

    Shapes: (..., size_in) -> (..., size_out).
    """

    def __init__(self, size_in: int, hidden_dim: int, size_out: int) -> None:
        super().__init__(
            Linear(size_in, hidden_dim),
            nn.ReLU(),
            Linear(hidden_dim, hidden_dim),
            nn.LayerNorm(hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, size_out),
        )

    def forward(self, x: Float[Tensor, "*batch size_in"]) -> Float[Tensor, "*batch size_out"]:
        first, relu, middle, _, _, last = self
        hidden: Tensor = middle(relu(first(x)))
        out: Tensor = last(self.norm_relu_sum(hidden.unsqueeze(-2)))
        return out

    def norm_relu_sum(self, hidden: Float[Tensor, "*batch P H"]) -> Float[Tensor, "*batch H"]:
        """The LayerNorm and the second ReLU, summed over P rows of the middle layer's output."""
        norm = self[3]
        assert isinstance(norm, nn.LayerNorm)
        return norm_relu_sum(hidden, norm.weight, norm.bias, norm.eps)
