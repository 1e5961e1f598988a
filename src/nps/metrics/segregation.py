"""Does one rule serve one operation? (paper, section 4.1: figure and tables of rule segregation)

Everything starts from the operation × rule table: how often rule i was used for operation o.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment

if TYPE_CHECKING:
    from jaxtyping import Int
    from numpy import ndarray
    from torch import Tensor


def usage_table(
    operation: Int[Tensor, "E"], rule: Int[Tensor, "E"], operations: int, rules: int
) -> Int[ndarray, "O N"]:
    """How often each rule was used for each operation; -1 (no rule fired) is not counted."""
    fired = rule >= 0
    cells = (operation[fired] * rules + rule[fired]).cpu().numpy()
    return np.bincount(cells, minlength=operations * rules).reshape(operations, rules)


def assignment(table: Int[ndarray, "O N"]) -> dict[int, int]:
    """The one-to-one assignment operation -> rule that explains the most uses."""
    operations, rules = linear_sum_assignment(table, maximize=True)
    return {int(o): int(r) for o, r in zip(operations, rules, strict=True)}


def segregation(table: Int[ndarray, "O N"]) -> float:
    """Fraction of uses explained by the best one-to-one assignment; 1 is perfect."""
    total = int(table.sum())
    if total == 0:
        return 0.0
    return sum(int(table[o, r]) for o, r in assignment(table).items()) / total


def normalised_mutual_information(table: Int[ndarray, "O N"]) -> float:
    """Mutual information of operation and rule over the mean of their entropies; 0 to 1.

    Unlike segregation, it does not penalise two rules that cleanly share one operation.
    """
    total = float(table.sum())
    if total == 0:
        return 0.0
    joint = table / total
    by_operation, by_rule = joint.sum(1), joint.sum(0)
    entropies = _entropy(by_operation) + _entropy(by_rule)
    if entropies == 0:
        return 1.0  # one operation, one rule
    information = entropies - _entropy(joint.ravel())
    return float(np.clip(2.0 * information / entropies, 0.0, 1.0))


def _entropy(p: ndarray) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())
