"""One training step of all seeds, from the batch to the new parameters, without reading the host.

Losses, gradients, the guard against values that are not finite, clipping, Adam, the moving average
and the sums for the log work on tensors that never move, so that the step can be replayed as a CUDA
graph. A seed whose loss or gradient is not finite stays as it was before that step, for good; the
step and the loss are remembered, and the other seeds are not affected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nps.training import distributed
from nps.training.batches import Batches
from nps.training.config import TrainConfig
from nps.training.precision import Precision, autocast
from nps.training.state import State
from nps.training.task import Batch, Task

if TYPE_CHECKING:
    from jaxtyping import Float


class Step:
    """The step as a function of no arguments: it changes `state`, and nothing else.

    Args:
        task: gives the loss.
        config: gives the norm to clip to.
        state: what to train.
        batches: prepared for the step that is due.
        total: steps of the whole training.
        precision: of the loss and its gradient.
    """

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        state: State,
        batches: Batches,
        total: int,
        precision: Precision = "float32",
    ) -> None:
        self.task, self.config, self.state, self.batches = task, config, state, batches
        self.total, self.precision = total, precision
        self.phase = task.phase(0.0)

    def __call__(self) -> None:
        state = self.state
        losses, parts = self.forward()
        gradient = state.stack.gradient(losses)
        scalars = {"loss": losses.detach()} | {k: v.detach() for k, v in parts.items()}
        with torch.no_grad():
            gradient, scalars = distributed.average(gradient, scalars)
            norms = state.stack.norms(gradient)
            self._guard(scalars["loss"], norms)
            state.adam.step(gradient, state.step, self._factor(norms), state.alive)
            if state.average is not None:
                state.average.update(state.step)
            state.add(scalars)
            state.step += 1

    def forward(self) -> tuple[Float[Tensor, "S"], dict[str, Float[Tensor, "S"]]]:
        """Every seed's loss on its batch, and the parts to log."""
        progress = (self.state.step[0] / self.total).float()

        def loss(model: nn.Module, index: Tensor, noise: Tensor, buffers: Any) -> Any:
            data = self.task.data.examples(index, buffers)
            with autocast(index.device, self.precision):
                total, parts = self.task.loss(
                    model, Batch(index, noise, progress, self.phase, data)
                )
            return total, dict(parts)

        losses, parts = self.state.stack.each(loss, *self.batches.at(self.state.step))
        return losses, parts

    def _guard(self, loss: Float[Tensor, "S"], norm: Float[Tensor, "S"]) -> None:
        """Record which seeds continue, before their state changes."""
        state = self.state
        torch.where(state.alive, loss, state.last_loss, out=state.last_loss)
        both = loss + norm
        state.alive &= both - both == 0.0  # NaN, so False, for NaN and the infinities
        state.steps_done += state.alive

    def _factor(self, norm: Float[Tensor, "S"]) -> Float[Tensor, "S"]:
        """What clipping multiplies each seed's gradient by."""
        if self.config.clip_norm is None:
            return torch.ones_like(norm)
        return (self.config.clip_norm / (norm + 1e-6)).clamp(max=1.0)
