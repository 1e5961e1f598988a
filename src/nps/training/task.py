"""What the training loop must know of an experiment: a model, a loss, a validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class Task(Protocol):
    """One experiment with its data, built for one config, seed and device."""

    model: nn.Module
    examples: int
    """Size of the training set; the loop draws indices below it."""

    def loss(
        self, index: Int[Tensor, "B"], noise: torch.Generator, progress: float
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Loss on the training examples `index`, and scalars to log as epoch means.

        All randomness comes from `noise`; schedules follow `progress`, the share of the training
        that is done, so that a step is a function of the saved state.
        """
        ...

    def validate(self) -> dict[str, Any]:
        """Metrics on the validation set, JSON values. `score` (lower is better) picks the best."""
        ...

    def test(self) -> dict[str, Any]:
        """Metrics on the test set, JSON values. Never called while training."""
        ...
