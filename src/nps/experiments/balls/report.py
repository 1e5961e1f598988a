"""The report on bouncing balls: the paper's table beside ours, with floors and learning curves."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

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
from nps.experiments.learning import learning
from nps.experiments.results import by_variant, read_results
from nps.inspect.report import Part, Report, Table

SHORT = ("balls-scoff", "balls-attention", "balls-pnps", "balls", "balls-best", "balls-none")
"""The rows of the short table, above two floors."""

CURVES = {"foreground ARI": "fg_ari", "ARI": "ari", "partner told": "partner"}
"""Panel of the learning curves -> metric."""
LEARNING = (
    "4 balls, validation scenes. Partner told: of colliding balls, how often the context is the "
    "one that is hit"
)


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
    results = by_variant(read_results(path), LABELS)
    report = Report("Bouncing balls: objects and rules learned from video")
    report.add(*changes.notice(results.values(), experiment))
    report.add(segmentation_table(results, ""), segmentation_table(results, TRANSFER))
    report.add(motion_table(results), *collision_table(results), *firing_table(results))
    report.add(*short_table(results))
    report.add(*learning(results, LABELS, CURVES, "share or agreement", LEARNING))
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
