"""Adam (Kingma and Ba, 2015) over the numbers of all seeds, in a form that a stack needs.

torch's own cannot leave single seeds out, and its fused kernel gives a small vector to two of a
GPU's processors. What depends on the step alone (learning rate and both bias corrections) is a
table. On a GPU with Triton the step is one kernel (kernels.py), elsewhere ten operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps import kernels
from nps.training.stack import Stack

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

DECAY_OF_MEAN = 0.9
DECAY_OF_SQUARE = 0.999
EPSILON = 1e-8


class Adam:
    """Moments of the gradient, and how far to go at each step.

    Args:
        stack: the models to train.
        rates: the learning rate of every step, in float64.
    """

    mean: Float[Tensor, "numbers"]
    square: Float[Tensor, "numbers"]

    def __init__(self, stack: Stack, rates: Float[Tensor, "steps"]) -> None:
        self._stack = stack
        self.mean = torch.zeros_like(stack.vector)
        self.square = torch.zeros_like(stack.vector)
        count = torch.arange(1, len(rates) + 1, dtype=torch.float64)
        of_mean = 1.0 - DECAY_OF_MEAN**count
        of_square = (1.0 - DECAY_OF_SQUARE**count).sqrt()
        # rate · (mean / of_mean) / (√square / of_square + ε), the corrections moved to the front
        table = torch.stack([rates * of_square / of_mean, EPSILON * of_square], 1)
        self._table = table.to(stack.vector)

    def step(
        self,
        gradient: Float[Tensor, "numbers"],
        step: Int[Tensor, "1"],
        factor: Float[Tensor, "S"],
        alive: Bool[Tensor, "S"],
    ) -> None:
        """Move every seed that is alive; the others stay bit for bit.

        Args:
            gradient: may be anything for a seed that is not alive.
            step: steps done so far.
            factor: on the gradient of each seed.
            alive: which seeds to move.
        """
        stack, moments = self._stack, (self.mean, self.square)
        vector, spread = stack.vector, stack.spread
        if kernels.possible(vector):
            from nps.training.kernels import adam

            decay = (DECAY_OF_MEAN, DECAY_OF_SQUARE)
            adam(vector, gradient, *moments, self._table, step, stack.seed_of, factor, alive, decay)
            return
        rate, epsilon = self._table.index_select(0, step).unbind(1)
        moves = spread(alive)
        gradient = torch.where(moves, gradient * spread(factor), 0.0)
        self.mean.lerp_(gradient, 1.0 - DECAY_OF_MEAN)
        self.square.mul_(DECAY_OF_SQUARE).addcmul_(gradient, gradient, value=1.0 - DECAY_OF_SQUARE)
        denominator = self.square.sqrt().add_(epsilon)
        vector.addcmul_(self.mean / denominator, torch.where(moves, rate, 0.0), value=-1.0)
