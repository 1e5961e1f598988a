"""Numbers of several seeds as the cells of a table: medians, ranges, means, counts, times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from nps.experiments.results import Result


def values(results: Sequence[Result], metric: str) -> list[float]:
    """A test metric, of each run."""
    return [result.number(metric) for result in results]


def median(results: Sequence[Result], metric: str, style: str = ".4f") -> str:
    """Median over seeds."""
    return format(statistics.median(values(results, metric)), style)


def spread(results: Sequence[Result], metric: str, style: str = ".4f") -> str:
    """Median and range over seeds, e.g. `0.0127 (0.0102 to 0.0178)`."""
    return median_range(values(results, metric), style)


def median_range(numbers: Sequence[float], style: str = ".4f") -> str:
    """Median and range, e.g. `0.0127 (0.0102 to 0.0178)`; a single number as it is."""
    middle = format(statistics.median(numbers), style)
    if len(numbers) == 1:
        return middle
    return f"{middle} ({min(numbers):{style}} to {max(numbers):{style}})"


def mean_sd(numbers: Sequence[float], style: str = ".1f") -> str:
    """Mean and standard deviation over seeds, e.g. `97.1 ± 0.4`; a single number as it is."""
    middle = format(statistics.fmean(numbers), style)
    if len(numbers) == 1 or not all(map(math.isfinite, numbers)):
        return middle
    return f"{middle} ± {statistics.stdev(numbers):{style}}"


def median_run(results: Sequence[Result], metric: str) -> Result:
    """The run with the median (the lower of two): a typical one, not the best."""
    ordered = sorted(results, key=lambda result: result.number(metric))
    return ordered[(len(ordered) - 1) // 2]


def count(results: Sequence[Result], condition: Callable[[Result], bool]) -> str:
    """The number of runs that meet a condition, e.g. `7 of 10`."""
    return f"{sum(map(condition, results))} of {len(results)}"


def wall_time(runs: Sequence[Result]) -> str:
    """The wall time of training, for as many seeds as were trained together."""
    seconds = sum(run.seconds for run in runs) / len(runs)
    together = max(run.seeds_in_stack for run in runs)
    known = f"{seconds:.0f} s" if all(run.all_timed for run in runs) else f"over {seconds:.0f} s"
    return f"{known} a run" if together == 1 else f"{known} for {together} seeds"
