"""A moment of a training as checkpoints, one a seed, and back.

Each seed's checkpoint is what the seed's own single run would have saved, so that a seed can go on
alone, or in another stack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.training import rng
from nps.training.checkpoint import Checkpoint, Tensors

if TYPE_CHECKING:
    from nps.training.stack import Stack
    from nps.training.update import Update


@dataclass
class Best:
    """The best models so far, on the device, and when they were found."""

    vector: Tensor
    constants: Tensors
    score: list[float]
    step: list[int]

    @classmethod
    def none_yet(cls, stack: Stack) -> Best:
        constants = {name: tensor.detach().clone() for name, tensor in stack.constants.items()}
        size = stack.size
        return cls(stack.vector.clone(), constants, [math.inf] * size, [0] * size)

    def consider(self, stack: Stack, scores: list[float], step: int) -> None:
        """Keep the models that are better than before."""
        better = [new < old for new, old in zip(scores, self.score, strict=True)]
        if any(better):
            self.take(stack, better)
        for s in range(stack.size):
            if better[s]:
                self.score[s], self.step[s] = scores[s], step

    def take(self, stack: Stack, which: list[bool]) -> None:
        """Copy the models of some seeds."""
        rows = torch.tensor(which, device=self.vector.device)
        self.vector.copy_(torch.where(stack.spread(rows), stack.vector, self.vector))
        for name, kept in self.constants.items():
            dims = kept.dim() - 1 if stack.size > 1 else kept.dim()
            mine = rows.view(-1, *[1] * dims) if stack.size > 1 else rows.view([1] * dims)
            kept.copy_(torch.where(mine, stack.constants[name], kept))


def to_checkpoint(update: Update, best: Best, s: int, step: int, log_length: int) -> Checkpoint:
    """Seed s as it would be saved by a run of its own."""
    stack = update.stack
    numbers, random_states = rng.global_state()
    tensors = {
        "model": stack.state_dict(s, stack.vector, stack.constants),
        "optimizer": _optimiser_of(update, s),
        "rng": random_states,
    }
    found = math.isfinite(best.score[s])
    if found:
        tensors["best"] = stack.state_dict(s, best.vector, best.constants)
    state = {
        "sums": {name: sums[s].item() for name, sums in update.sums.items()},
        "best_score": best.score[s] if found else None,
        "best_step": best.step[s],
        "log_length": log_length,
        "rng": numbers,
    }
    return Checkpoint(step, tensors, state)


def from_checkpoint(found: Checkpoint, update: Update, best: Best, s: int) -> None:
    """Put seed s where its checkpoint left it."""
    stack = update.stack
    if "best" in found.tensors:
        stack.load_state_dict(s, found.tensors["best"])
        best.score[s], best.step[s] = found.state["best_score"], found.state["best_step"]
        best.take(stack, [other == s for other in range(stack.size)])
    stack.load_state_dict(s, found.tensors["model"])
    _restore_optimiser(update, s, found.tensors["optimizer"])
    device = stack.vector.device
    for name, value in found.state["sums"].items():
        if name not in update.sums:
            update.sums[name] = torch.zeros(stack.size, dtype=torch.float64, device=device)
        update.sums[name][s] = value
    update.step.fill_(found.step)
    update.lived.fill_(found.step)


def _optimiser_of(update: Update, s: int) -> Tensors:
    """Adam's moments by parameter and the steps done, named as torch's own Adam does."""
    numbers, step = _numbers(update.stack), update.step[0].float().cpu()
    saved: Tensors = {}
    for moment, vector in _moments(update).items():
        for name, part in update.stack.parts(vector).items():
            saved[f"{numbers[name]}.{moment}"] = part[s].cpu().clone()
            saved[f"{numbers[name]}.step"] = step.clone()
    return saved


def _restore_optimiser(update: Update, s: int, saved: Tensors) -> None:
    numbers = _numbers(update.stack)
    for moment, vector in _moments(update).items():
        for name, part in update.stack.parts(vector).items():
            part[s].copy_(saved[f"{numbers[name]}.{moment}"])


def _moments(update: Update) -> Tensors:
    return {"exp_avg": update.adam.mean, "exp_avg_sq": update.adam.square}


def _numbers(stack: Stack) -> dict[str, int]:
    """The place of each trained parameter among all, by which torch's optimisers name it."""
    everything = [name for name, _ in stack.model.named_parameters()]
    return {name: everything.index(name) for name in stack.parameters}
