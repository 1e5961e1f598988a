"""A moment of a training as checkpoints, one a seed, and back.

Each seed's checkpoint is what the seed's own single run would have saved, so that a seed can go on
alone, or in another stack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.training import rng
from nps.training.checkpoint import Checkpoint, Tensors

if TYPE_CHECKING:
    from nps.training.stack import Stack
    from nps.training.update import Update

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class Best:
    """The best models so far, on the device, and when they were found."""

    matrix: Tensor
    constants: Tensors
    score: list[float]
    step: list[int]

    @classmethod
    def none_yet(cls, stack: Stack) -> Best:
        constants = {name: tensor.detach().clone() for name, tensor in stack.constants.items()}
        size = stack.size
        return cls(stack.matrix.clone(), constants, [math.inf] * size, [0] * size)

    def consider(self, stack: Stack, scores: list[float], step: int) -> None:
        """Keep the models that are better than before."""
        better = [new < old for new, old in zip(scores, self.score, strict=True)]
        if not any(better):
            return
        rows = torch.tensor(better, device=self.matrix.device)
        _take(rows, self.matrix, stack.matrix, stack.size)
        for name, kept in self.constants.items():
            _take(rows, kept, stack.constants[name], stack.size)
        for s in range(stack.size):
            if better[s]:
                self.score[s], self.step[s] = scores[s], step


def _take(rows: Tensor, kept: Tensor, new: Tensor, size: int) -> None:
    if size == 1:  # a stack of one has no leading dimension
        kept.copy_(new)
    else:
        kept.copy_(torch.where(rows.view(-1, *[1] * (kept.dim() - 1)), new, kept))


def to_checkpoint(update: Update, best: Best, s: int, step: int, log_length: int) -> Checkpoint:
    """Seed s as it would be saved by a run of its own."""
    stack = update.stack
    numbers, random_states = rng.global_state()
    tensors = {
        "model": stack.state_dict(s, stack.matrix, stack.constants),
        "optimizer": _optimiser_of(update, s),
        "rng": random_states,
    }
    found = math.isfinite(best.score[s])
    if found:
        tensors["best"] = stack.state_dict(s, best.matrix, best.constants)
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
        rows = torch.arange(stack.size, device=best.matrix.device) == s
        _take(rows, best.matrix, stack.matrix, stack.size)
        for name, kept in best.constants.items():
            _take(rows, kept, stack.constants[name], stack.size)
    stack.load_state_dict(s, found.tensors["model"])
    _restore_optimiser(update, s, found.tensors["optimizer"])
    device = stack.matrix.device
    for name, value in found.state["sums"].items():
        if name not in update.sums:
            update.sums[name] = torch.zeros(stack.size, dtype=torch.float64, device=device)
        update.sums[name][s] = value
    update.step.fill_(found.step)
    update.lived.fill_(found.step)


def _numbers(stack: Stack) -> dict[str, int]:
    """The place of each trained parameter among all, by which torch's optimisers name it."""
    everything = [name for name, _ in stack.model.named_parameters()]
    return {name: everything.index(name) for name in stack.parameters}


def _optimiser_of(update: Update, s: int) -> Tensors:
    """Adam's state by parameter, as flat names, e.g. `3.exp_avg`."""
    state: dict[str, Any] = update.optimiser.state[update.matrix]
    saved: Tensors = {}
    for moment in MOMENTS if state else ():
        for (name, part), shape in zip(
            update.stack.parts(state[moment]).items(), update.stack.shapes.values(), strict=True
        ):
            number = _numbers(update.stack)[name]
            saved[f"{number}.{moment}"] = part[s].reshape(shape).cpu().clone()
            saved[f"{number}.step"] = state["step"].cpu().clone()
    return saved


def _restore_optimiser(update: Update, s: int, saved: Tensors) -> None:
    stack, matrix = update.stack, update.matrix
    if not saved:
        return
    state: dict[str, Any] = update.optimiser.state[matrix]
    if not state:
        device = matrix.device if matrix.is_cuda else torch.device("cpu")
        state["step"] = torch.zeros((), device=device)
        state |= {moment: torch.zeros_like(matrix) for moment in MOMENTS}
    numbers = _numbers(stack)
    for moment in MOMENTS:
        for name, part in stack.parts(state[moment]).items():
            part[s].copy_(saved[f"{numbers[name]}.{moment}"].reshape(part[s].shape))
    state["step"].copy_(next(value for key, value in saved.items() if key.endswith(".step")))
