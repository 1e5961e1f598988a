"""Adam (Kingma and Ba, 2015) over the numbers of all seeds, in a form that a stack needs.

torch's own cannot leave single seeds out, and its fused kernel gives a vector of this size to two
of a GPU's processors. What depends on the step alone (learning rate and both bias corrections) is
a table, so that a step is ten operations on the vector whatever the schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

DECAY_OF_MEAN = 0.9
DECAY_OF_SQUARE = 0.999
EPSILON = 1e-8


class Adam:
    """Moments of the gradient, and how far to go at each step.

    Args:
        vector: what will be trained; tells size and device.
        rates: the learning rate of every step, in float64.
    """

    mean: Float[Tensor, "numbers"]
    square: Float[Tensor, "numbers"]

    def __init__(self, vector: Float[Tensor, "numbers"], rates: Float[Tensor, "steps"]) -> None:
        self.mean = torch.zeros_like(vector)
        self.square = torch.zeros_like(vector)
        count = torch.arange(1, len(rates) + 1, dtype=torch.float64)
        of_mean = 1.0 - DECAY_OF_MEAN**count
        of_square = (1.0 - DECAY_OF_SQUARE**count).sqrt()
        # rate · (mean / of_mean) / (√square / of_square + ε), the corrections moved to the front
        table = torch.stack([rates * of_square / of_mean, EPSILON * of_square], 1)
        self._table = table.to(vector)

    def step(
        self,
        vector: Float[Tensor, "numbers"],
        gradient: Float[Tensor, "numbers"],
        step: Int[Tensor, "1"],
        moves: Bool[Tensor, "#numbers"],
    ) -> None:
        """Change the vector in place where it may move; elsewhere it stays bit for bit.

        Args:
            vector: what is trained.
            gradient: may be anything where nothing moves.
            step: steps done so far.
            moves: which numbers to change.
        """
        rate, epsilon = self._table.index_select(0, step).unbind(1)
        gradient = torch.where(moves, gradient, 0.0)
        self.mean.lerp_(gradient, 1.0 - DECAY_OF_MEAN)
        self.square.mul_(DECAY_OF_SQUARE).addcmul_(gradient, gradient, value=1.0 - DECAY_OF_SQUARE)
        denominator = self.square.sqrt().add_(epsilon)
        vector.addcmul_(self.mean / denominator, torch.where(moves, rate, 0.0), value=-1.0)
