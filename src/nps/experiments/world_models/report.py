"""Tables of world models' rankings: mean and standard deviation over seeds, in per cent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nps.experiments.results import Result
from nps.experiments.summaries import mean_sd, values, wall_time
from nps.inspect.report import Table

STEPS = (1, 5, 10)
METRICS = tuple(f"{name}_{step}" for name in ("h1", "mrr") for step in STEPS)
COLUMNS = tuple(f"{name}, {step}" for name in ("H@1", "MRR") for step in STEPS)

MAIN = ("h1_1", "h1_5", "h1_10", "identity_h1_1", "identity_h1_10")
"""The ranking and its floor, where the paper looks first."""


def percent(runs: Sequence[Result], metric: str) -> str:
    """Mean and standard deviation, or a dash where it was not measured."""
    if any(metric not in run.test for run in runs):
        return "–"
    return mean_sd([100 * value for value in values(runs, metric)])


def numbers(runs: Sequence[Result], who: str = "", ties: str = "") -> list[str]:
    """H@1 and MRR after 1, 5 and 10 steps; of a floor, if `who` names one; `_strict`, or not."""
    metrics = (metric.replace("_", f"{ties}_") for metric in METRICS)
    return [percent(runs, f"{who}{metric}") for metric in metrics]


def hidden_table(groups: Mapping[str, Sequence[Result]]) -> Table:
    """What H@1 as C-SWM computes it does not show; a row for each name."""
    rows = []
    for name, runs in groups.items():
        last = max(step for step in STEPS if f"h1_{step}" in runs[0].test)
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
