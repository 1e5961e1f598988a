"""Bootstrap confidence intervals of means."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

LEVEL = 0.95
DRAWS = 2_000
CELLS = 2**22
"""Numbers drawn at a time."""


class Interval(NamedTuple):
    low: float
    high: float


def mean_interval(
    total: Float[ndarray, "n"],
    count: Float[ndarray, "n"] | None = None,
    *,
    limits: tuple[float, float] = (0.0, 1.0),
    seed: int = 0,
) -> Interval:
    """The 95 % interval of a mean over n roll-outs, by a percentile bootstrap over roll-outs.

    If all values are equal, every resample is too: two hits of two would give 100 to 100 %. The
    exact bound is used then: with a true share outside it, n equal outcomes would occur in fewer
    than 5 % of all samples.

    Args:
        total: sum over the steps of each roll-out.
        count: number of these steps; default: one each.
        limits: smallest and largest possible value of a step.
        seed: of the resampling; equal inputs give equal intervals.
    """
    total = np.asarray(total, float)
    count = np.ones_like(total) if count is None else np.asarray(count, float)
    if len(total) == 0 or total.shape != count.shape:
        raise ValueError(f"total: got shape {total.shape}, expected that of count, not empty")
    low, high = limits
    mean = total.sum() / count.sum()
    if np.ptp(total / count) == 0:
        margin = (high - low) * (1 - (1 - LEVEL) ** (1 / len(total)))
        return Interval(max(low, mean - margin), min(high, mean + margin))
    random = np.random.default_rng(seed)
    at_once = max(1, CELLS // len(total))
    means = []
    for start in range(0, DRAWS, at_once):
        drawn = random.integers(len(total), size=(min(at_once, DRAWS - start), len(total)))
        means.append(total[drawn].sum(1) / count[drawn].sum(1))
    tail = (1 - LEVEL) / 2
    return Interval(*(float(q) for q in np.quantile(np.concatenate(means), [tail, 1 - tail])))
