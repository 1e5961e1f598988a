"""The report on bouncing balls: the paper's table beside ours, with floors and learning curves."""

from __future__ import annotations

from dataclasses import replace
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
from nps.experiments.results import Result, by_variant, read_results
from nps.inspect.report import Part, Report, Table
from nps.reading import exists, read_json

SHORT = ("balls-scoff", "balls-attention", "balls-pnps", "balls", "balls-best", "balls-none")
"""The rows of the short table, above two floors."""

FLOORS_FILE = "floors.json"

ERROR = "MSE / previous frame"
CURVES: dict[str, str | tuple[str, str]] = {
    "ARI of all pixels": "ari",
    ERROR: ("mse", "copy_mse"),
    "partner told": "partner",
}
"""Panel of the learning curves -> metric, or two of which the ratio is drawn."""
LEARNING = (
    "4 balls, validation scenes. MSE / previous frame: the error of the next frame over that of "
    "copying the last one. Partner told: of colliding balls, how often the context is the one that "
    "is hit"
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
    results = with_floors(by_variant(read_results(path), LABELS), path)
    report = Report("Bouncing balls: objects and rules learned from video")
    report.add(*changes.notice(results.values(), experiment))
    report.add(segmentation_table(results, ""), segmentation_table(results, TRANSFER))
    report.add(motion_table(results), *collision_table(results), *firing_table(results))
    report.add(*short_table(results))
    curves = (results, LABELS, CURVES, "agreement, ratio or share", LEARNING)
    report.add(*learning(*curves, ranges=True, log_panels=(ERROR,)))
    report.add(*changes.provenance(results.values(), experiment))
    return report


def with_floors(results: Results, path: Path) -> dict[str, list[Result]]:
    """Runs that were tested before a floor was added have it from the folder's floors.json.

    `benchmarks/balls_floors.py` writes it: floors are of the test scenes, and need no model."""
    file = path / FLOORS_FILE
    floors = read_json(file, dict[str, float]) if exists(file) else {}
    return {
        name: [replace(run, test={**floors, **run.test}) for run in runs]
        for name, runs in results.items()
    }


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
        near = cell(first, f"{TRANSFER}nearest_partner", ".0%") if floor == "copy" else NONE
        rows.append([FLOORS[floor], NONE, of_balls, NONE, of_more, all_pixels, away, near])
    caption = (
        "The main comparison in short. Median over seeds (range). Partner, of the previous frame: "
        "the nearest ball in it."
    )
    head = ["Model", "Paper", "FG-ARI", "Paper, 6–8", "FG-ARI, 6–8", "ARI, 6–8"]
    head += ["Bumped, 6–8", "Partner, 6–8"]
    return [Table(head, rows, caption, "short")]
