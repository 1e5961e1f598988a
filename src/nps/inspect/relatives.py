"""Which rules of a layer do alike, or the opposite, and which ask for alike conditions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from nps.inspect.observations import Observations
from nps.rules import RuleLayer

INPUTS, INPUT_NUMBERS = 256, 2_000_000
"""Inputs on which rules are compared, fewer where slots are large."""


@dataclass(frozen=True)
class Relative:
    """Another rule."""

    rule: int
    similarity: float
    """Cosine of what the two would add to the same slots."""
    embedding: float
    """Cosine of their embeddings, their conditions."""


@torch.no_grad()
def all_relatives(layer: RuleLayer, seen: Observations) -> list[tuple[Relative, ...]]:
    """For each rule, the others by the cosine of what they would add to the same slots, whatever
    its sign."""
    rules, size = layer.rules, seen.read.shape[1]
    count = min(INPUTS, max(8, INPUT_NUMBERS // (size * len(rules))))
    fired = np.flatnonzero(seen.rule >= 0)
    rows = fired if len(fired) else np.arange(len(seen.rule))
    rows = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]
    weight = rules.embedding
    shape = [len(rows), rules.slot_dim]
    if rules.event_dims == 3:
        side = round(math.sqrt(size / rules.slot_dim))
        shape += [side, side]
    read, context = (
        torch.as_tensor(part[rows], dtype=weight.dtype, device=weight.device).view(shape)
        for part in (seen.read, seen.read_context)
    )
    would = rules.each(read, context).transpose(0, 1).flatten(1).float()
    adds, means = _cosines(would), _cosines(rules.tensor("embedding").float())
    found = []
    for i in range(len(rules)):
        others = [Relative(j, adds[i][j], means[i][j]) for j in range(len(rules)) if j != i]
        found.append(tuple(sorted(others, key=lambda other: -abs(other.similarity))))
    return found


def _cosines(rows: torch.Tensor) -> list[list[float]]:
    unit = torch.nn.functional.normalize(rows, dim=-1)
    found: list[list[float]] = (unit @ unit.T).clamp(-1.0, 1.0).tolist()
    return found
