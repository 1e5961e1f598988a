"""Learning curves of a report: validation metrics over training, as means or medians over seeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from nps.experiments.results import Result
from nps.inspect import figures
from nps.inspect.report import Figure

Lines = dict[str, dict[int, np.ndarray]]
"""line -> epoch -> a value of each seed"""


def learning(
    results: Mapping[str, list[Result]],
    labels: Mapping[str, str],
    panels: Mapping[str, str | tuple[str, str]],
    y: str,
    caption: str,
    *,
    log: bool = False,
    ranges: bool = False,
    log_panels: Collection[str] = (),
) -> list[Figure]:
    """The figure "learning"; empty without curves or without matplotlib.

    Args:
        results: variant -> its runs.
        labels: variant -> name of its line; the variant itself where there is none.
        panels: title of a panel -> validation metric, or two of which the ratio is shown.
        y: label of the y axis.
        caption: what the figure shows, and of which data.
        log: whether the y axis is logarithmic.
        ranges: medians over seeds with their range; see `figures.means_over`.
        log_panels: those whose axis is logarithmic, if not all are alike.
    """
    if not figures.available():
        return []
    drawn: dict[str, Lines] = {}
    for title, metric in panels.items():
        lines = {labels.get(name, name): curve_of(runs, metric) for name, runs in results.items()}
        drawn[title] = {label: curve for label, curve in lines.items() if curve}
    drawn = {title: lines for title, lines in drawn.items() if lines}
    if not drawn:
        return []
    bands = "range of the seeds" if log or ranges else "standard deviation"
    middle = "Median" if ranges else "Mean"
    caption += f". {middle} over seeds; bands, for the first line of a colour: {bands}"
    picture = figures.means_over(drawn, "epoch", y, log=log, ranges=ranges, log_panels=log_panels)
    return [Figure("learning", picture, caption)]


def curve_of(runs: list[Result], metric: str | tuple[str, str]) -> dict[int, np.ndarray]:
    """epoch -> the values of the seeds, in epochs in which all have this metric, or both."""
    if isinstance(metric, tuple):
        over, under = (curve_of(runs, each) for each in metric)
        return {epoch: over[epoch] / under[epoch] for epoch in over if epoch in under}
    curves = [
        {
            row["epoch"]: row["validation"][metric]
            for row in run.curve()
            if metric in row.get("validation", {})
        }
        for run in runs
    ]
    shared = [epoch for epoch in curves[0] if all(epoch in curve for curve in curves)]
    return {epoch: np.array([curve[epoch] for curve in curves]) for epoch in shared}
