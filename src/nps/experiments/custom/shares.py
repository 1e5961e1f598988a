"""Shares of predicted steps as the rows of a table, of one seed or of several."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nps.experiments.world_models.config import ENOUGH

T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Number of seeds -> half-width of the 95 % interval of their mean, in standard errors (Student's
t); beyond ten 2.2 is close enough."""
ALL = "all"
EQUAL = 1e-9
"""Per cent; seeds that differ by less have the same number but for rounding."""


@dataclass(frozen=True)
class Share:
    """One row: the share of correct predictions after a number of steps, in per cent.

    For several seeds all numbers are means over seeds, even the ends of intervals over roll-outs.
    """

    steps: str
    """A number, or `all`."""
    predicted: float
    low: float
    high: float
    copied: float
    """Share of the copy-input baseline."""
    gain_low: float
    gain_high: float
    """Interval of the difference to it."""
    chance: float
    rollouts: int
    over_seeds: tuple[float, float] | None
    """95 % interval over seeds, if there are several and they differ."""

    @property
    def enough(self) -> bool:
        return self.rollouts >= ENOUGH

    @property
    def better(self) -> bool:
        """Better than copying the input and than chance, beyond the intervals."""
        return self._better_on_average and not self.seeds_differ

    @property
    def seeds_differ(self) -> bool:
        """Better on average, but not beyond the interval over seeds."""
        floor = max(self.copied, self.chance)
        return (
            self._better_on_average and self.over_seeds is not None and self.over_seeds[0] <= floor
        )

    @property
    def _better_on_average(self) -> bool:
        return self.gain_low > 0 and self.low > self.chance

    @property
    def cells(self) -> list[str]:
        """The row as text; see `COLUMNS`."""
        cells = [
            "all steps" if self.steps == ALL else self.steps,
            f"{self.predicted:.1f}",
            _interval(self.low, self.high),
            f"{self.copied:.1f}",
            f"{self.chance:.0f}" if self.chance >= 10 else f"{self.chance:.2g}",
            str(self.rollouts),
        ]
        return cells if self.over_seeds is None else [*cells, _interval(*self.over_seeds)]


COLUMNS = ("Steps", "Predicted", "95 % interval", "Copy the input", "Chance", "Roll-outs")
OVER_SEEDS = "95 % over seeds"
CAPTION = (
    "Predicted: held-out steps, in per cent, whose true observation is the nearest to the "
    "prediction among all distinct observations of the held-out episodes; k that are equally near "
    "count 1/k. 95 % interval: bootstrap over roll-outs. Copy the input: the observation is the "
    "first one of its roll-out again. Chance: one of the distinct observations at random."
)


PARTS = ("predicted", "predicted_low", "predicted_high", "copied", "gain_low", "gain_high")
"""Test metrics for each number of steps, next to `predicted_rollouts`."""


def has_shares(test: Mapping[str, Any]) -> bool:
    """False for test metrics of older versions, or damaged ones."""
    steps = [*_steps_of(test), ALL]
    keys = [f"{part}_{step}" for part in (*PARTS, "predicted_rollouts") for step in steps]
    keys += ["chance", "distinct_observations", "predicted_steps"]
    return len(steps) > 1 and all(type(test.get(key)) in (int, float) for key in keys)


def _steps_of(test: Iterable[str]) -> list[str]:
    """The numbers of steps of some test metrics."""
    names = (key.removeprefix("predicted_") for key in test if key.startswith("predicted_"))
    return sorted((name for name in names if name.isdecimal()), key=int)


def shares(tests: Sequence[Mapping[str, Any]]) -> list[Share]:
    """A row for each number of steps, and one for all steps, of the test metrics of some seeds."""
    common = set.intersection(*(set(test) for test in tests))
    return [_share(tests, step) for step in (*_steps_of(common), ALL)]


def _share(tests: Sequence[Mapping[str, Any]], step: str) -> Share:
    def mean(key: str) -> float:
        return 100 * statistics.fmean(test[key] for test in tests)

    return Share(
        steps=step,
        predicted=mean(f"predicted_{step}"),
        low=mean(f"predicted_low_{step}"),
        high=mean(f"predicted_high_{step}"),
        copied=mean(f"copied_{step}"),
        gain_low=mean(f"gain_low_{step}"),
        gain_high=mean(f"gain_high_{step}"),
        chance=mean("chance"),
        rollouts=min(test[f"predicted_rollouts_{step}"] for test in tests),
        over_seeds=_over_seeds([100 * test[f"predicted_{step}"] for test in tests]),
    )


def _over_seeds(numbers: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of their mean; None for a single number, and for equal ones.

    Equal numbers do not show how far other seeds would be from them: the interval would have no
    width, however few they are.
    """
    count = len(numbers)
    if max(numbers) - min(numbers) < EQUAL:
        return None
    half = T_95.get(count, 2.2) * statistics.stdev(numbers) / math.sqrt(count)
    middle = statistics.fmean(numbers)
    return max(0.0, middle - half), min(100.0, middle + half)


def _interval(low: float, high: float) -> str:
    return f"{low:.0f} to {high:.0f}"
