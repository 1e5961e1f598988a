"""Tables of world models' rankings: mean and standard deviation over seeds, in per cent."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TypedDict

from nps.experiments.results import Result
from nps.experiments.summaries import mean_sd, values, wall_time
from nps.experiments.world_models.config import HORIZONS
from nps.inspect.report import Table

METRICS = tuple(f"{name}_{step}" for name in ("h1", "mrr") for step in HORIZONS)
COLUMNS = tuple(f"{name}, {step}" for name in ("H@1", "MRR") for step in HORIZONS)

MAIN = ("h1_1", "h1_5", "h1_10", "identity_h1_1", "identity_h1_10")
"""The metrics that the paper reports first, and their baseline."""


class Tested(TypedDict):
    """The required fields of test.json; further metrics depend on the length of the episodes."""

    h1_1: float
    transition_parameters: int


def percent(runs: Sequence[Result], metric: str) -> str:
    """Mean and standard deviation in per cent, or a dash if it was not measured."""
    if any(metric not in run.test for run in runs):
        return "–"
    return mean_sd([100 * value for value in values(runs, metric)])


def mean_percent(runs: Sequence[Result], metric: str) -> str:
    """Mean in per cent."""
    return f"{100 * statistics.fmean(values(runs, metric)):.1f}"


def ranking_cells(runs: Sequence[Result], baseline: str = "", ties: str = "") -> list[str]:
    """H@1 and MRR after 1, 5 and 10 steps.

    Args:
        runs: one a seed.
        baseline: prefix of a baseline's metrics, such as `identity_`; empty for the model's own.
        ties: `_strict` if ties are misses.
    """
    metrics = (metric.replace("_", f"{ties}_") for metric in METRICS)
    return [percent(runs, f"{baseline}{metric}") for metric in metrics]


def hidden_table(groups: Mapping[str, Sequence[Result]]) -> Table:
    """What H@1 as C-SWM computes it does not show; a row for each name."""
    rows = []
    for name, runs in groups.items():
        last = max(step for step in HORIZONS if f"h1_{step}" in runs[0].test)
        keys = ("h1_strict", "identity_h1_strict", "h1_distinct", "h1_episode_strict")
        cells = [percent(runs, f"{key}_{last}") for key in keys]
        size = f"{runs[0].test['transition_parameters']:,}"
        rows.append([name, str(last), *cells, size, wall_time(runs)])
    caption = (
        "After the most steps. Strict: H@1 where ties are misses, and the same for a transition in "
        "which nothing moves. Distinct: predictions of an equal observation are right too. In its "
        "episode: H@1 among the states of the episode, ties are misses. Parameters: of the "
        "transition."
    )
    columns = ["Model", "Steps", "Strict", "Nothing moves, strict", "Distinct", "In its episode"]
    return Table([*columns, "Parameters", "Training"], rows, caption)
