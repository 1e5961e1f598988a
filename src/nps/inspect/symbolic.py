"""Read a rule as a sentence: a least-squares fit of its action, with its R².

A rule's MLP maps (primary, context) to an update. If that map is close to linear on the cases for
which the rule is used, its coefficients make the sentence: "x ← x + x_context".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nps.rules import MLPRules

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

NEGLIGIBLE = 0.05
"""Smaller coefficients are left out, and those this close to an integer are rounded."""


@dataclass(frozen=True)
class Reading:
    """One rule in words."""

    sentence: str
    r2: float
    uses: int

    def __str__(self) -> str:
        return f"{self.sentence}   (R² {self.r2:.3f}, {self.uses} uses)"


def read_rule(
    rules: MLPRules,
    i: int,
    primary: Float[Tensor, "E D"],
    context: Float[Tensor, "E D"],
    coordinates: Sequence[str],
) -> Reading:
    """Fit rule i on the slots it was used on.

    Args:
        rules: the rule set.
        i: index of the rule.
        primary, context: the slots that the rule read, one row per use.
        coordinates: names of the D entries of a slot.
    """
    uses = len(primary)
    if uses <= 2 * len(coordinates) + 1:
        return Reading("never used" if uses == 0 else "hardly used", float("nan"), uses)
    with torch.no_grad():
        update = rules.outputs(primary, context)[i].double().cpu().numpy()
    inputs = torch.cat([primary, context], -1).double().cpu().numpy()
    design = np.column_stack([inputs, np.ones(uses)])
    coefficients = np.linalg.lstsq(design, update, rcond=None)[0]
    residual = update - design @ coefficients
    spread = ((update - update.mean(0)) ** 2).sum()
    r2 = 1.0 - (residual**2).sum() / spread if spread > 1e-12 else float("nan")
    return Reading(_sentence(coefficients, coordinates), float(r2), uses)


def _sentence(coefficients: Float[ndarray, "2D+1 D"], coordinates: Sequence[str]) -> str:
    """Coefficients of the update -> "x ← x + x_context"; unchanged coordinates are left out."""
    names = [*coordinates, *(f"{name}_context" for name in coordinates), ""]
    parts = []
    for target, name in enumerate(coordinates):
        total = coefficients[:, target].copy()
        if np.abs(total).max() < NEGLIGIBLE:
            continue
        total[target] += 1.0  # the residual connection: new = old + update
        terms = [(total[target], name)]
        terms += [(c, n) for j, (c, n) in enumerate(zip(total, names, strict=True)) if j != target]
        parts.append(f"{name} ← {_sum(terms)}")
    return ", ".join(parts) if parts else "nothing changes"


def _sum(terms: list[tuple[float, str]]) -> str:
    text = ""
    for coefficient, name in terms:
        if abs(coefficient) < NEGLIGIBLE:
            continue
        size = abs(coefficient)
        rounded = round(size)
        number = f"{rounded}" if abs(size - rounded) < NEGLIGIBLE else f"{size:.2f}"
        factor = name if number == "1" and name else f"{number}·{name}" if name else number
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {factor}" if text else (f"-{factor}" if coefficient < 0 else factor)
    return text or "0"
