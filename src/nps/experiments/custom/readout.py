"""A linear read-out of the slots as an image: the model has no decoder of its own.

Fitted by ridge regression on training images, after training and with frozen slots. It shows what
can be read from the slots by a linear map, and no more: what it blurs may still be in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

RIDGE = 1e-3
"""Strength of the penalty, relative to the mean variance of a slot's numbers."""


class LinearReadout(NamedTuple):
    weight: Float[Tensor, "MD P"]
    slots: Float[Tensor, "MD"]
    """Mean of the slots."""
    pixels: Float[Tensor, "P"]
    """Mean image."""

    def __call__(self, slots: Float[Tensor, "*batch M D"]) -> Float[Tensor, "*batch P"]:
        image: Tensor = (slots.flatten(-2) - self.slots) @ self.weight + self.pixels
        return image

    def explained(self, slots: Float[Tensor, "n M D"], pixels: Float[Tensor, "n P"]) -> float:
        """Share of the variance of these images that the read-out explains, at most 1."""
        left = (self(slots) - pixels).square().sum()
        spread = (pixels - self.pixels).square().sum()
        return float(1 - left / spread) if spread > 0 else 1.0


def fit_readout(slots: Float[Tensor, "n M D"], pixels: Float[Tensor, "n P"]) -> LinearReadout:
    """Ridge regression from slots to pixels."""
    flat = slots.flatten(1).double()
    centre, image = flat.mean(0), pixels.double().mean(0)
    inputs, targets = flat - centre, pixels.double() - image
    gram = inputs.T @ inputs
    penalty = RIDGE * gram.diagonal().mean().clamp(min=1e-12)
    gram.diagonal().add_(penalty)
    weight = torch.linalg.solve(gram, inputs.T @ targets)
    return LinearReadout(*(part.to(slots.dtype) for part in (weight, centre, image)))
