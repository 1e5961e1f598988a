"""What the training loop must know of an experiment: data, a model, a loss, a judgement.

A task holds data and no model. The loop owns the models, because it trains many at once: it calls
`loss` and `measure` under `vmap` for a stack of seeds and inside a CUDA graph, so these two are
functions of their arguments that read nothing on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Float, Int


@dataclass(frozen=True)
class Batch:
    """Everything a step depends on, besides the model."""

    index: Int[Tensor, "B"]
    """Which training examples."""
    noise: Float[Tensor, "B noise"]
    """Uniform numbers in [0, 1): all the randomness there is, a row an example."""
    progress: Float[Tensor, ""]
    """The share of the training that is done; schedules follow it, as tensors."""
    phase: str
    """What `Task.phase` said; within a phase the step is the same program."""


class Task(Protocol):
    """One experiment with its data, on one device. Models are those that `make_model` makes."""

    examples: int
    """Size of the training set; the loop draws indices below it."""
    noise_size: int
    """Uniform numbers that the loss uses for each example."""
    fingerprint: str | None
    """Of data that may change while a run lives, since they are the user's; else None."""

    def make_model(self, seed: int) -> nn.Module:
        """A new model, initialised from the seed."""
        ...

    def phase(self, progress: float) -> str:
        """The name of the training's phase. Changes of the program (not of numbers) go here."""
        ...

    def loss(
        self, model: Any, batch: Batch
    ) -> tuple[Float[Tensor, ""], dict[str, Float[Tensor, ""]]]:
        """Mean loss over the batch, and scalars to log as epoch means, the same in every phase."""
        ...

    def measure(self, model: Any) -> dict[str, Tensor]:
        """What the model does on the validation set."""
        ...

    def judge(self, measured: dict[str, Tensor]) -> dict[str, Any]:
        """Metrics of what was measured, JSON values. `score` (lower is better) picks the best."""
        ...

    def test(self, model: Any) -> dict[str, Any]:
        """Metrics on the test set, JSON values. Never called while training."""
        ...
