"""The optimiser: Adam with decoupled weight decay, its learning rates, and the moving average.

Adam (Kingma and Ba, 2015), AdamW (Loshchilov and Hutter, 2019), over the parameters of all seeds at
once. torch's own cannot leave single seeds out, and its fused kernel uses only two of a GPU's
processors for a small vector. What depends only on the step (learning rate, both bias corrections,
weight decay) is a table. `kernels/adam.py` has the arithmetic.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.kernels.adam import DECAY_OF_MEAN, DECAY_OF_SQUARE, adam
from nps.training.config import TrainConfig
from nps.training.stack import Stack

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

EPSILON = 1e-8


def learning_rates(config: TrainConfig, total: int) -> Float[Tensor, "steps"]:
    """The learning rate of every step: constant or cosine, times a linear warm-up."""
    high, low = config.learning_rate, config.final_learning_rate
    count = torch.arange(total, dtype=torch.float64)
    progress = count / total
    if low is None:
        rates = torch.full_like(progress, high)
    else:
        if split := config.restart_at:
            after = (progress - split) / (1.0 - split)
            progress = torch.where(progress < split, progress / split, after)
        rates = low + (high - low) * 0.5 * (1.0 + (math.pi * progress).cos())
    if config.warmup_steps:
        rates = rates * ((count + 1) / config.warmup_steps).clamp(max=1.0)
    return rates


class Adam:
    """The moments of the gradient, and the size of each step.

    Args:
        stack: the models to train.
        rates: the learning rate of every step, in float64.
        weight_decay: share of a parameter that a step removes, times the learning rate.
    """

    mean: Float[Tensor, "P"]
    square: Float[Tensor, "P"]

    def __init__(
        self, stack: Stack, rates: Float[Tensor, "steps"], weight_decay: float = 0.0
    ) -> None:
        self._stack = stack
        self._decays = weight_decay > 0.0
        self.mean = torch.zeros_like(stack.vector)
        self.square = torch.zeros_like(stack.vector)
        count = torch.arange(1, len(rates) + 1, dtype=torch.float64)
        of_mean = 1.0 - DECAY_OF_MEAN**count
        of_square = (1.0 - DECAY_OF_SQUARE**count).sqrt()
        # rate · (mean / of_mean) / (√square / of_square + ε), the corrections moved to the front
        columns = [rates * of_square / of_mean, EPSILON * of_square, rates * weight_decay]
        self._table = torch.stack(columns, 1).to(stack.vector)

    def step(
        self,
        gradient: Float[Tensor, "P"],
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
        settings = self._table, step, stack.seed_of, factor, alive
        adam(stack.vector, gradient, *moments, *settings, decays=self._decays)


class MovingAverage:
    """Exponential moving average of the parameters, for evaluation (Polyak averaging).

    The decay rises from 0.1 with the steps done, up to its value: the random initialisation would
    weigh on short trainings otherwise.

    Args:
        stack: the models that are trained.
        decay: how much of the average a step keeps.
        total: steps of the training.
    """

    vector: Float[Tensor, "P"]

    def __init__(self, stack: Stack, decay: float, total: int) -> None:
        self._stack = stack
        self.vector = stack.vector.clone()
        count = torch.arange(total, dtype=torch.float64)
        kept = ((1.0 + count) / (10.0 + count)).clamp(max=decay)
        self._weights = (1.0 - kept).to(stack.vector)

    def update(self, step: Int[Tensor, "1"]) -> None:
        """Take in the parameters after a step; `step` counts those before it."""
        self.vector.lerp_(self._stack.vector, self._weights.index_select(0, step))
