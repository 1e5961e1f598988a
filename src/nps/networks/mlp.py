"""The network that C-SWM uses everywhere: from maps to slots, on edges and on nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from nps.networks.linear import Linear
from nps.networks.normalised import normalised_sum

if TYPE_CHECKING:
    from jaxtyping import Float


class NormalisedMLP(nn.Sequential):
    """Linear, ReLU, Linear, LayerNorm, ReLU, Linear.

    In a stack under autocast the result alone is float32: it is small, and may be a slot.

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
        result: Tensor = last(self.total(middle(relu(first(x))).unsqueeze(-2)))
        return result

    def total(self, x: Float[Tensor, "*batch P hidden"]) -> Float[Tensor, "*batch hidden"]:
        """What the middle layer's P rows are, normalised and after their ReLU, together."""
        norm = self[3]
        assert isinstance(norm, nn.LayerNorm)
        return normalised_sum(x, norm.weight, norm.bias, norm.eps)
