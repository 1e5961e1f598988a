"""Everything that changes while S seeds train, in one place, and how it becomes checkpoints.

Each seed's checkpoint is what the seed's own single run would have saved, so that a seed can
continue alone or in another stack. Random numbers are functions of seed and step and need no state.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypedDict

import torch
from torch import Tensor

from nps import schema
from nps.training.checkpoint import Checkpoint, Tensors
from nps.training.config import TrainConfig
from nps.training.optimiser import Adam, MovingAverage, learning_rates
from nps.training.stack import Stack

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


class Progress(TypedDict):
    """What a checkpoint says of a training besides its tensors."""

    sums: dict[str, float]
    best_score: float | None
    best_step: int
    log_length: int


class State:
    """The state of a training.

    Args:
        stack: the models.
        config: learning rates, weight decay, moving average.
        total: steps of the whole training.
    """

    step: Int[Tensor, "1"]
    """Steps done."""
    alive: Bool[Tensor, "S"]
    """Seeds whose losses and gradients have all been finite."""
    steps_done: Int[Tensor, "S"]
    """Steps that each seed has done: fewer than `step` once it has failed."""
    last_loss: Float[Tensor, "S"]
    """The newest loss of each seed; for a failed one, the loss that it failed with."""
    sums: dict[str, Float[Tensor, "S"]]
    """Of the loss and its parts since the epoch began."""

    def __init__(self, stack: Stack, config: TrainConfig, total: int) -> None:
        device, s = stack.vector.device, stack.size
        self.stack = stack
        self.adam = Adam(stack, learning_rates(config, total), config.weight_decay)
        self.average = None
        if config.ema_decay is not None:
            self.average = MovingAverage(stack, config.ema_decay, total)
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self.alive = torch.ones(s, dtype=torch.bool, device=device)
        self.steps_done = torch.zeros(s, dtype=torch.long, device=device)
        self.last_loss = torch.zeros(s, device=device)
        self.sums = {}
        self.best = Best(stack)

    @property
    def evaluated(self) -> Float[Tensor, "P"] | None:
        """The parameters to evaluate, if they are not the ones that are trained."""
        return None if self.average is None else self.average.vector

    def add(self, scalars: dict[str, Float[Tensor, "S"]]) -> None:
        """Add one step's scalars to the sums of the epoch."""
        for name, values in scalars.items():
            if name not in self.sums:
                self.sums[name] = torch.zeros_like(values, dtype=torch.float64)
            self.sums[name] += values

    def take_sums(self) -> list[dict[str, float]]:
        """The sums of each seed, on the host; resets them to zero."""
        names = list(self.sums)
        rows = torch.stack([self.sums[name] for name in names]).T.tolist()
        for total in self.sums.values():
            total.zero_()
        return [dict(zip(names, row, strict=True)) for row in rows]

    # -- checkpoints --------------------------------------------------------------------------

    def to_checkpoint(self, s: int, step: int, log_length: int) -> Checkpoint:
        """Seed s as a run of its own would save it."""
        stack, best = self.stack, self.best
        tensors = {
            "model": stack.state_dict(s, stack.vector, stack.constants),
            "optimizer": self._optimiser_of(s),
        }
        if self.average is not None:
            tensors["ema"] = stack.state_dict(s, self.average.vector, stack.constants)
        found = math.isfinite(best.score[s])
        if found:
            tensors["best"] = stack.state_dict(s, best.vector, best.constants)
        state = {
            "sums": {name: sums[s].item() for name, sums in self.sums.items()},
            "best_score": best.score[s] if found else None,
            "best_step": best.step[s],
            "log_length": log_length,
        }
        return Checkpoint(step, tensors, state)

    def misfit(self, s: int, saved: Checkpoint) -> str | None:
        """Why a checkpoint cannot be one of seed s, or None if it can."""
        if (what := schema.problem(saved.state, Progress)) is not None:
            return f"state.json: {what}"
        expected = self.to_checkpoint(s, 0, 0).tensors
        if self.average is not None:
            expected["ema"] = expected["model"]
        if saved.state["best_score"] is not None:
            expected["best"] = expected["model"]
        for group, tensors in expected.items():
            found = saved.tensors.get(group, {})
            for name, tensor in tensors.items():
                if name not in found:
                    return f"{group}.safetensors: {name} is missing"
                if name.endswith("_extra_state"):  # text, of any length
                    continue
                got, wanted = (f"{tuple(t.shape)} {t.dtype}" for t in (found[name], tensor))
                if got != wanted:
                    what = f"size mismatch for {name}: got {got}, expected {wanted}"
                    return f"{group}.safetensors: {what}"
        return None

    @torch.no_grad()
    def restore(self, s: int, saved: Checkpoint) -> None:
        """Restore seed s from its checkpoint."""
        stack, best = self.stack, self.best
        rows = torch.arange(stack.size, device=stack.vector.device) == s
        if saved.state["best_score"] is not None:
            stack.load_state_dict(s, saved.tensors["best"])
            best.score[s], best.step[s] = saved.state["best_score"], saved.state["best_step"]
            best.copy(rows)
        if self.average is not None:
            stack.load_state_dict(s, saved.tensors["ema"])
            selected = stack.spread(rows)
            self.average.vector.copy_(torch.where(selected, stack.vector, self.average.vector))
        stack.load_state_dict(s, saved.tensors["model"])
        self._restore_optimiser(s, saved.tensors["optimizer"])
        for name, value in saved.state["sums"].items():
            if name not in self.sums:
                self.sums[name] = torch.zeros_like(self.last_loss, dtype=torch.float64)
            self.sums[name][s] = value
        self.step.fill_(saved.step)
        self.steps_done.fill_(saved.step)

    def _optimiser_of(self, s: int) -> Tensors:
        """Adam's moments by parameter and the steps done, named as `torch.optim.Adam` does."""
        positions, step = self._positions(), self.step[0].float().cpu()
        saved: Tensors = {}
        for moment, vector in self._moments().items():
            for name, part in self.stack.parts(vector).items():
                saved[f"{positions[name]}.{moment}"] = part[s].cpu().clone()
                saved[f"{positions[name]}.step"] = step.clone()
        return saved

    def _restore_optimiser(self, s: int, saved: Tensors) -> None:
        positions = self._positions()
        for moment, vector in self._moments().items():
            for name, part in self.stack.parts(vector).items():
                part[s].copy_(saved[f"{positions[name]}.{moment}"])

    def _moments(self) -> Tensors:
        return {"exp_avg": self.adam.mean, "exp_avg_sq": self.adam.square}

    def _positions(self) -> dict[str, int]:
        """The position of each trained parameter among all, by which torch's optimisers name it."""
        everything = [name for name, _ in self.stack.model.named_parameters()]
        return {name: everything.index(name) for name in self.stack.parameters}


class Best:
    """The best model of each seed so far, on the device, and when it was found."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.vector = stack.vector.clone()
        self.constants = {n: tensor.detach().clone() for n, tensor in stack.constants.items()}
        self.score = [math.inf] * stack.size
        self.step = [0] * stack.size

    def consider(self, scores: list[float], step: int) -> None:
        """Keep the current models of the seeds whose score is the best so far."""
        better = [new < old for new, old in zip(scores, self.score, strict=True)]
        if any(better):
            self.copy(torch.tensor(better, device=self.vector.device))
        for s, (score, is_better) in enumerate(zip(scores, better, strict=True)):
            if is_better:
                self.score[s], self.step[s] = score, step

    def copy(self, rows: Bool[Tensor, "S"]) -> None:
        """Copy the current models of some seeds."""
        stack = self._stack
        self.vector.copy_(torch.where(stack.spread(rows), stack.vector, self.vector))
        for name, kept in self.constants.items():
            dims = kept.dim() - (stack.size > 1)
            selected = rows.view(-1, *[1] * dims) if stack.size > 1 else rows.view([1] * dims)
            kept.copy_(torch.where(selected, stack.constants[name], kept))
