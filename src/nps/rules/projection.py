"""The learned maps to queries and keys: W^q and W^k of Algorithms 1 and 2.

Scores decide hard choices, so they are computed in float32 at least, whatever the slots' type and
whether or not autocast is on: half precision would flip choices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

import torch
from torch import Tensor, nn

from nps.rules.config import Query

if TYPE_CHECKING:
    from jaxtyping import Float

MLP_WIDTH = 128


class Factory(TypedDict, total=False):
    """Where and in which type parameters are made, as for `nn.Linear`."""

    device: torch.device | str | None
    dtype: torch.dtype | None


def exact(x: Tensor) -> Tensor:
    """Cast to float32 unless the type is at least as wide."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Projection(nn.Module):
    """Slot or rule features to queries or keys.

    `"linear"` is the paper's: one matrix, no bias. `"mlp"` puts one hidden layer of 128 ReLU units
    before it, for conditions that no linear score can express: with one rule and an action copied
    to every slot, the action's term of a linear score is the same for all slots and cancels in the
    choice; and a bilinear score cannot ask "is my change equal to that slot's value".
    """

    def __init__(
        self, in_dim: int, key_dim: int, kind: Query = "linear", **factory: Unpack[Factory]
    ) -> None:
        super().__init__()
        self.kind = kind
        self.hidden = nn.Linear(in_dim, MLP_WIDTH, **factory) if kind == "mlp" else None
        width = in_dim if self.hidden is None else MLP_WIDTH
        self.out = nn.Linear(width, key_dim, bias=False, **factory)

    def forward(self, features: Float[Tensor, "*batch F"]) -> Float[Tensor, "*batch key"]:
        with torch.autocast(features.device.type, enabled=False):
            x = exact(features)
            if self.hidden is not None:
                weight, bias = self.hidden.weight, self.hidden.bias
                x = nn.functional.linear(x, weight.to(x.dtype), bias.to(x.dtype)).relu()
            return nn.functional.linear(x, self.out.weight.to(x.dtype))


def reset_linear(*modules: nn.Module) -> None:
    """Draw the weights of all linear layers anew, in the order in which they were built."""
    for module in modules:
        for layer in module.modules():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()


def match(
    query: Float[Tensor, "*batch Q key"], key: Float[Tensor, "*batch P key"]
) -> Float[Tensor, "*batch Q P"]:
    """Dot products of queries and keys, unscaled as the paper writes them."""
    with torch.autocast(query.device.type, enabled=False):
        return query @ key.to(query.dtype).transpose(-1, -2)
