"""One training step of all seeds, from the batch to the new weights, without a look at the host.

Losses, gradients, the guard against numbers that are not finite, clipping, Adam and the sums for
the log work on tensors that stay where they are, so that the step can be replayed as a CUDA graph.
A seed whose loss or gradient is not finite is left as it was before that step, for good: the step
and the loss are remembered, and the other seeds do not notice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nps.training import distributed
from nps.training.adam import Adam
from nps.training.config import TrainConfig
from nps.training.feed import Feed
from nps.training.precision import Precision, autocast
from nps.training.stack import Stack
from nps.training.task import Batch, Task

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


class Update:
    """The step as a function of no arguments. Everything it changes is an attribute."""

    step: Int[Tensor, "1"]
    """Steps done."""
    alive: Bool[Tensor, "S"]
    """Seeds whose numbers have all been finite."""
    lived: Int[Tensor, "S"]
    """Steps that a seed has done: behind `step` once it has failed."""
    last_loss: Float[Tensor, "S"]
    """The newest loss of a seed; of a failed one, the loss it failed with."""
    sums: dict[str, Float[Tensor, "S"]]
    """Of the loss and the task's scalars since the epoch began."""

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        stack: Stack,
        feed: Feed,
        total: int,
        precision: Precision = "float32",
    ) -> None:
        device, s = stack.vector.device, stack.size
        self.task, self.config, self.stack, self.feed = task, config, stack, feed
        self.total, self.precision = total, precision
        self.phase = task.phase(0.0)
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self.alive = torch.ones(s, dtype=torch.bool, device=device)
        self.lived = torch.zeros(s, dtype=torch.long, device=device)
        self.last_loss = torch.zeros(s, device=device)
        self.sums = {}
        self.adam = Adam(stack, rates(config, total))

    def forward(self) -> tuple[Float[Tensor, "S"], dict[str, Float[Tensor, "S"]]]:
        """Every seed's loss on its batch, and what else is logged."""
        index, noise = self.feed.batch(self.step)
        progress = (self.step[0] / self.total).float()

        def loss(
            model: nn.Module, index: Tensor, noise: Tensor
        ) -> tuple[Tensor, dict[str, Tensor]]:
            with autocast(index.device, self.precision):
                return self.task.loss(model, Batch(index, noise, progress, self.phase))

        losses, extras = self.stack.each(loss, index, noise)
        return losses, extras

    def __call__(self) -> None:
        losses, extras = self.forward()
        gradient = self.stack.gradient(losses)
        scalars = {"loss": losses.detach()} | {k: v.detach() for k, v in extras.items()}
        with torch.no_grad():
            gradient, scalars = distributed.average(gradient, scalars)
            norms = self.stack.norms(gradient)
            self._guard(scalars["loss"], norms)
            self._descend(gradient, norms)
            self._add(scalars)
            self.step += 1

    def _guard(self, loss: Float[Tensor, "S"], norm: Float[Tensor, "S"]) -> None:
        torch.where(self.alive, loss, self.last_loss, out=self.last_loss)
        both = loss + norm
        self.alive &= both - both == 0.0  # of NaN and the infinities this is NaN
        self.lived += self.alive

    def _descend(self, gradient: Float[Tensor, "numbers"], norm: Float[Tensor, "S"]) -> None:
        factor = torch.ones_like(norm)
        if self.config.clip_norm is not None:
            factor = (self.config.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        self.adam.step(gradient, self.step, factor, self.alive)

    def _add(self, scalars: dict[str, Float[Tensor, "S"]]) -> None:
        for name, values in scalars.items():
            if name not in self.sums:
                self.sums[name] = torch.zeros_like(values, dtype=torch.float64)
            self.sums[name] += values


def rates(config: TrainConfig, total: int) -> Float[Tensor, "steps"]:
    """The learning rate of every step."""
    high, low = config.learning_rate, config.final_learning_rate
    progress = torch.arange(total, dtype=torch.float64) / total
    if low is None:
        return torch.full_like(progress, high)
    if split := config.restart_at:
        after = (progress - split) / (1.0 - split)
        progress = torch.where(progress < split, progress / split, after)
    return low + (high - low) * 0.5 * (1.0 + (math.pi * progress).cos())
