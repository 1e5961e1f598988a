"""The report on bouncing balls: the paper's table beside ours, with floors and learning curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nps.experiments import changes
from nps.experiments.balls.task import TRANSFER
from nps.experiments.experiment import Experiment
from nps.experiments.results import Result, by_variant, read_results
from nps.experiments.summaries import spread
from nps.inspect import figures
from nps.inspect.report import Figure, Part, Report, Table

LABELS = {
    "balls-scoff": "SCOFF",
    "balls-attention": "SCOFF++ (attention)",
    "balls-pnps": "parallel NPS",
    "balls": "NPS",
    "balls-best": "NPS, one stage, other slots as context",
    "balls-as-published": "NPS, rules as published",
    "balls-gnn": "GNN",
    "balls-none": "no interaction",
}
PAPER = {
    "balls-scoff": ("0.28", "0.15"),
    "balls-attention": ("0.84", "0.26"),
    "balls-pnps": ("0.78", "0.20"),
    "balls": ("0.85", "0.36"),
}
"""Section 4.2, two seeds: "ARI" with 4 balls, and with 6 to 8."""
FLOORS = {
    "grid": "floor: 3 × 3 grid",
    "colour": "floor: colours alone",
    "copy": "floor: previous frame",
}
SEGMENTATION = ("fg_ari", "ari", "fg_miou")
VIDEO = "video_fg_ari"

Results = dict[str, list[Result]]


def write_report(path: Path, experiment: Experiment) -> Report:
    """Tables and curves of the tested runs at `path`."""
    results = by_variant(read_results(path))
    report = Report("Bouncing balls: objects and rules learned from video")
    report.add(*changes.notice(results.values(), experiment))
    report.add(segmentation_table(results, ""), segmentation_table(results, TRANSFER))
    report.add(dynamics_table(results), *learning(results))
    report.add(*changes.provenance(results.values(), experiment))
    return report


def segmentation_table(results: Results, prefix: str) -> Table:
    """The paper's metric in both readings, the IoU and the next frame's error."""
    rows = [
        [
            LABELS.get(name, name),
            PAPER.get(name, ("–", "–"))[bool(prefix)],
            *(spread(runs, prefix + metric, ".3f") for metric in (*SEGMENTATION, VIDEO)),
            spread(runs, f"{prefix}mse", ".4f"),
        ]
        for name, runs in results.items()
    ]
    first = next(iter(results.values()))[:1]  # floors do not depend on the run
    for floor, label in FLOORS.items():
        cells = [spread(first, f"{prefix}{floor}_{metric}", ".3f") for metric in SEGMENTATION]
        error = spread(first, f"{prefix}copy_mse", ".4f") if floor == "copy" else "–"
        rows.append([label, "–", *cells, "–", error])
    balls = "6 to 8 balls, 9 slots" if prefix else "4 balls, 5 slots, as in training"
    caption = (
        f"{balls}: the next frame, after 1 to 10 seen ones; median over seeds (range). Paper: ARI, "
        "of which pixels is not said. Foreground ARI and IoU per frame; video: over all frames, "
        "where a ball has to keep its slot."
    )
    head = [
        "Model",
        "Paper's ARI",
        "Foreground ARI",
        "ARI",
        "Foreground mIoU",
        "Video FG-ARI",
        "MSE",
    ]
    return Table(head, rows, caption)


def dynamics_table(results: Results) -> Table:
    """How far predicted balls are from the true ones."""
    metrics = ("position", "position_collision", "rollout_position", "rollout_fg_ari")
    rows = [
        [
            LABELS.get(name, name),
            *(spread(runs, prefix + m, ".2f") for prefix in ("", TRANSFER) for m in metrics),
        ]
        for name, runs in results.items()
        if all(prefix + m in run.test for run in runs for prefix in ("", TRANSFER) for m in metrics)
    ]
    first = next(iter(results.values()))[:1]
    floor = ["floor: previous frame"]
    for prefix in ("", TRANSFER):
        floor += [spread(first, f"{prefix}copy_{m}", ".2f") for m in metrics[:2]] + ["–", "–"]
    caption = (
        "Distance of a ball from its slot's pixels in the next frame, in radii of a light ball: all"
        " frames; the two after a collision; then 20 frames without input: distance and foreground "
        "ARI."
    )
    columns = ["next", "at collisions", "roll-out", "roll-out FG-ARI"]
    head = ["Model", *columns, *(f"6–8 balls: {column}" for column in columns)]
    return Table(head, [*rows, floor], caption)


def learning(results: Results) -> list[Part]:
    """Foreground ARI over training, on validation scenes."""
    lines = {}
    for name, runs in results.items():
        curves = [
            {r["epoch"]: r["validation"]["fg_ari"] for r in run.curve() if "validation" in r}
            for run in runs
        ]
        shared = [epoch for epoch in curves[0] if all(epoch in curve for curve in curves)]
        lines[LABELS.get(name, name)] = {e: np.array([c[e] for c in curves]) for e in shared}
    if not figures.available():
        return []
    caption = "Foreground ARI on validation scenes: mean over seeds; bands: range of the seeds"
    drawn = figures.means_over({"4 balls": lines}, "epoch", "foreground ARI")
    return [Figure("learning", drawn, caption)]
