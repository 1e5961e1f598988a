"""The contract between an experiment and the training loop.

A task says where its training examples come from, builds a model, computes its loss, and evaluates
it. It holds data and no model. The loop owns the models and everything that changes while training:

    data ──► batch ──► loss ──► step                          every step, captured on CUDA
    batches("validation") ──► measure ──► judge, draw         every few epochs
    batches("test") ──► measure ──► judge                     `nps eval`

Random numbers of a training step are functions of (seed, step), so that a resumed run equals an
uninterrupted one. Dropout, `torch.randn` and layers that draw their own noise need nothing for
that: the loop seeds torch's generators before every step. A task whose seeds train as one stack
takes its noise from `Batch.noise` instead, so that a seed's numbers do not depend on the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nps.errors import UserError
from nps.training.data import Source, accumulate

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from nps.rollouts import Rollout
    from nps.rules import Trace


@dataclass(frozen=True)
class Batch:
    """Everything a training step depends on, besides the model."""

    index: Int[Tensor, "B"]
    """Which training examples."""
    noise: Float[Tensor, "B noise"]
    """Uniform numbers in [0, 1), a row for each example."""
    progress: Float[Tensor, ""]
    """Share of the training that is done; schedules follow it, as tensors."""
    phase: str
    """What `Task.phase` returned; within a phase the step is the same program."""
    data: Any = None
    """The examples, as the task's source gives them."""


class Task(ABC):
    """One experiment with its data, on one device.

    `loss` and `measure` are functions of their arguments. On CUDA `loss` is captured, so it reads
    nothing on the host; if the task is stackable, both run under `vmap`.
    """

    data: Source
    """The training set."""
    stackable: bool = False
    """Whether several seeds can train as one stack under `vmap`. If not, a model may use any layer
    (`nn.GRUCell`, cuDNN), and several seeds train one after the other."""
    noise_size: int = 0
    """Uniform numbers in `Batch.noise` for each example."""
    sets: Mapping[str, Any] = MappingProxyType({})
    """The data by split, for programs and notebooks (`nps.load(run).data`)."""
    input_names: tuple[str, ...] = ()
    """The inputs of `trace`; empty if the models cannot be traced."""
    fingerprint: str | None = None
    """Of data that may change between two commands, such as the user's own; None for fixed data."""
    unrecorded_fingerprint: str | None = None
    """That of runs which recorded none; None takes their data to be the same."""

    @property
    def examples(self) -> int:
        """Size of the training set."""
        return self.data.size

    @abstractmethod
    def make_model(self, seed: int) -> nn.Module:
        """A new model, initialised from the seed."""

    def phase(self, progress: float) -> str:
        """Name of the phase of training at this share of it.

        A captured step is a fixed program: what changes the program, rather than a number in it,
        must be a new phase.
        """
        return "all"

    @abstractmethod
    def loss(
        self, model: Any, batch: Batch
    ) -> tuple[Float[Tensor, ""], Mapping[str, Float[Tensor, ""]]]:
        """The loss to minimise, and named parts of it to log: the same names in every phase."""

    @abstractmethod
    def batches(self, split: str) -> Iterable[Any]:
        """The batches of "validation" or "test", of whatever type `measure` takes."""

    @abstractmethod
    def measure(self, model: Any, batch: Any) -> dict[str, Tensor]:
        """What the model does on one batch, an entry for each example.

        The results of all batches are joined along the first dimension on the host.
        """

    @abstractmethod
    def judge(self, measured: dict[str, Tensor], split: str) -> dict[str, Any]:
        """Metrics of a whole split, as JSON values; `score`, lower is better, picks the best."""

    def score(self, validation: Mapping[str, Any], training: Mapping[str, float]) -> float:
        """What the best model has least of.

        Args:
            validation: what `judge` said of the validation set.
            training: means of the loss and its parts over the training steps of the last epoch.
        """
        return float(validation["score"])

    @torch.no_grad()
    def evaluate(self, model: Any, split: str) -> dict[str, Any]:
        """Measure every batch of a split, and judge them together."""
        parts = [
            {name: values.cpu() for name, values in self.measure(model, batch).items()}
            for batch in self.batches(split)
        ]
        return self.judge(accumulate(parts), split)

    def draw(self, model: Any) -> Mapping[str, Any]:
        """Pictures to look at while training, by name: uint8 arrays (H, W, 3) or (H, W), or PNG.

        Called at the end of a training, and every `draw_every` epochs if that is set, with one
        model in evaluation mode; never under `vmap`. Must leave the model as it is.
        """
        return {}

    def test(self, model: Any) -> dict[str, Any]:
        """Metrics on the test set, as JSON values. Never called while training."""
        metrics = self.evaluate(model, "test")
        del metrics["score"]
        return metrics

    # -- traces and roll-outs of a trained model, if it has any ---------------------------------

    def first_inputs(self, split: str, count: int | None) -> tuple[Tensor, ...]:
        """The inputs of `trace` for the first examples of a split, by default a few."""
        raise UserError("trace: this experiment has no examples to trace")

    def trace(self, model: Any, *inputs: Tensor) -> Trace:
        """What fires in the model on some inputs, one for each of `input_names`."""
        raise UserError("trace: models of this experiment have no rules")

    def first_episodes(
        self, split: str, count: int | None, steps: int | None
    ) -> tuple[Tensor, Tensor]:
        """The observations and actions of the first episodes of a split, as `rollout` takes them.

        Args:
            split: "validation" or "test".
            count: number of episodes, by default a few.
            steps: steps of each, by default all.
        """
        raise UserError("rollout: this experiment has no episodes, only single steps")

    def rollout(self, model: Any, images: Tensor, actions: Tensor) -> Rollout:
        """Predict from the first observation of each episode and its actions.

        Args:
            model: the model.
            images: the first observation of each episode, or all of them.
            actions: (E, T, ...).
        """
        raise UserError("rollout: models of this experiment predict single steps only")


FEW = 8
"""Default number of examples or episodes."""


def how_many(name: str, wanted: int | None, most: int, what: str, usual: int = FEW) -> int:
    """The number of examples, episodes or steps to take; refuses more than there are."""
    if wanted is None:
        return min(usual, most)
    if not 1 <= wanted <= most:
        raise UserError(f"{name}: got {wanted}, expected 1 to {most}, as many as {what} has")
    return wanted
