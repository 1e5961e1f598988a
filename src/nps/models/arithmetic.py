"""Coordinate arithmetic: points are slots; selection sees input and output, rules only the input.

Appendix "Coordinate Arithmetic Task": steps 2 and 3 use slots (x, y, x̂, ŷ), while the rule's MLP
gets only the input coordinates, so that it cannot copy the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nps.rules import RuleLayer, Trace

if TYPE_CHECKING:
    from jaxtyping import Float

COORDINATES = ("x", "y")


class CoordinateArithmetic(nn.Module):
    """Any rule layer over 2-D points, with `selection_dim=4`."""

    def __init__(self, layer: RuleLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self,
        before: Float[Tensor, "B M 2"],
        after: Float[Tensor, "B M 2"],
        *,
        noise: Tensor | torch.Generator | None = None,
        return_trace: bool = False,
    ) -> Float[Tensor, "B M 2"] | tuple[Float[Tensor, "B M 2"], Trace]:
        """The predicted points after the operation; with `return_trace` also the trace."""
        demonstration = torch.cat([before, after], -1)
        result: Tensor | tuple[Tensor, Trace] = self.layer(
            before, selection=demonstration, noise=noise, return_trace=return_trace
        )
        return result

    def every_update(
        self, before: Float[Tensor, "B M 2"], after: Float[Tensor, "B M 2"]
    ) -> tuple[Float[Tensor, "B M N M"], Float[Tensor, "B M N M 2"]]:
        """Every change that the layer could make, and how likely each is (sequential NPS)."""
        demonstration = torch.cat([before, after], -1)
        return self.layer.every_update(before, selection=demonstration)
