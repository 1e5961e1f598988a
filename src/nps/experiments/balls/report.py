"""The report on bouncing balls: the paper's table beside ours, with floors and learning curves."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import numpy as np

from nps.experiments import changes
from nps.experiments.balls.tables import (
    FLOORS,
    LABELS,
    NONE,
    Results,
    cell,
    collision_table,
    firing_table,
    motion_table,
    one_run,
    paper,
    segmentation_table,
)
from nps.experiments.balls.task import TRANSFER
from nps.experiments.experiment import Experiment
from nps.experiments.results import Result, by_variant, read_results
from nps.inspect import figures
from nps.inspect.report import Figure, Part, Report, Table

SHORT = ("balls-scoff", "balls-attention", "balls-pnps", "balls", "balls-best", "balls-none")
"""The rows of the short table, above two floors."""

CURVES = {"foreground ARI": "fg_ari", "ARI": "ari", "partner told": "partner"}
"""Panel of the learning curves -> metric."""


class Tested(TypedDict):
    """The fields of test.json that every table has; those of collisions depend on the model."""

    fg_ari: float
    ari: float
    mse: float
    copy_mse: float
    transfer_fg_ari: float
    transfer_ari: float
    transfer_mse: float
    transfer_copy_mse: float


def write_report(path: Path, experiment: Experiment) -> Report:
    """Tables and curves of the tested runs at `path`."""
    found = by_variant(read_results(path))
    known = [name for name in LABELS if name in found]
    results = {name: found[name] for name in dict.fromkeys([*known, *found])}
    report = Report("Bouncing balls: objects and rules learned from video")
    report.add(*changes.notice(results.values(), experiment))
    report.add(segmentation_table(results, ""), segmentation_table(results, TRANSFER))
    report.add(motion_table(results), *collision_table(results), *firing_table(results))
    report.add(*short_table(results), *learning(results))
    report.add(*changes.provenance(results.values(), experiment))
    return report


def short_table(results: Results) -> list[Part]:
    """The main comparison, for a page of one screen; empty without any of its models."""
    rows = []
    for name in SHORT:
        if name in results:
            runs, cells = results[name], []
            for prefix in ("", TRANSFER):
                cells += [paper(name, prefix), cell(runs, f"{prefix}fg_ari")]
            styles = {"ari": ".3f", "position_collision": ".2f", "partner": ".0%"}
            cells += [cell(runs, TRANSFER + metric, style) for metric, style in styles.items()]
            rows.append([LABELS[name], *cells])
    if not rows:
        return []
    first = one_run(results)
    for floor in ("grid", "copy"):
        of_balls, of_more = (cell(first, f"{p}{floor}_fg_ari") for p in ("", TRANSFER))
        all_pixels = cell(first, f"{TRANSFER}{floor}_ari")
        away = cell(first, f"{TRANSFER}{floor}_position_collision", ".2f")
        rows.append([FLOORS[floor], NONE, of_balls, NONE, of_more, all_pixels, away, NONE])
    caption = "The main comparison in short. Median over seeds (range)."
    head = ["Model", "Paper", "FG-ARI", "Paper, 6–8", "FG-ARI, 6–8", "ARI, 6–8"]
    head += ["Bumped, 6–8", "Partner, 6–8"]
    return [Table(head, rows, caption, "short")]


def learning(results: Results) -> list[Part]:
    """Both readings of the ARI and the told partners over training, on validation scenes."""
    if not figures.available():
        return []
    panels: dict[str, dict[str, dict[int, np.ndarray]]] = {}
    for title, metric in CURVES.items():
        lines = {LABELS.get(name, name): curve_of(runs, metric) for name, runs in results.items()}
        panels[title] = {label: curve for label, curve in lines.items() if curve}
    panels = {title: lines for title, lines in panels.items() if lines}
    if not panels:
        return []
    caption = (
        "4 balls, validation scenes: mean over seeds; bands, for the first line of a colour: "
        "standard deviation. Partner told: of colliding balls, how often the context is the one "
        "that is hit"
    )
    return [Figure("learning", figures.means_over(panels, "epoch", "share or agreement"), caption)]


def curve_of(runs: list[Result], metric: str) -> dict[int, np.ndarray]:
    """epoch -> the values of the seeds, in epochs in which all have this metric."""
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
