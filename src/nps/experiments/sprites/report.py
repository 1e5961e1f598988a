"""The tables of Sprites-MOT: the benchmark's protocol, and predictions; medians over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from nps.experiments import changes
from nps.experiments.experiment import Experiment
from nps.experiments.learning import learning
from nps.experiments.results import Result, by_variant, read_results
from nps.experiments.sprites.watching import AHEAD
from nps.experiments.summaries import median_range
from nps.inspect.report import Report, Table

LABELS = {
    "sprites-op3": "OP3",
    "sprites": "OP3 with sequential NPS",
    "sprites-pnps": "OP3 with parallel NPS",
    "sprites-none": "OP3, no interaction",
    "sprites-bounce-op3": "OP3, bouncing sprites",
    "sprites-bounce": "OP3 with sequential NPS, bouncing sprites",
    "sprites-bounce-none": "OP3, no interaction, bouncing sprites",
    **{
        f"sprites{bounce}-tracker{end}": f"tracker with {what}{where}"
        for bounce, where in {"": "", "-bounce": ", bouncing sprites"}.items()
        for end, what in {
            "": "sequential NPS",
            "-pnps": "parallel NPS",
            "-attention": "attention",
            "-gnn": "a GNN",
            "-none": "no interaction",
        }.items()
    },
}
METRICS = {
    "MOTA": "mota",
    "MOTP": "motp",
    "MD": "mostly_detected",
    "MT": "mostly_tracked",
    "Match": "match",
    "Miss": "miss",
    "IDS": "switch",
    "FP": "false_positive",
}
LEADERBOARD = {
    "leaderboard: SCALOR": "94.9 80.2 96.4 93.2 95.9 2.4 1.7 1.0",
    "leaderboard: ViMON": "92.9 91.8 87.7 87.2 95.0 4.8 0.2 2.1",
    "leaderboard: OP3": "89.1 78.4 92.4 91.8 95.9 3.7 0.4 6.8",
    "leaderboard: TBA": "79.7 71.2 83.4 80.0 87.8 9.6 2.6 8.1",
    "leaderboard: MONet": "70.2 89.6 92.4 50.4 75.3 4.4 20.3 5.1",
    "paper: OP3 with sequential NPS": "90.7 79.9 94.7 93.2 96.9 2.5 0.6 6.2",
}
"""Weis et al. (2021), and the paper's appendix, three seeds each. The paper's own row of OP3 is the
leaderboard's."""
CURVES = {"frames seen": "mota", "one ahead": "ahead1_mota", "three ahead": "ahead3_mota"}
"""Panel of the learning curves -> metric."""
FLOORS = {"copy": "floor: what was there", "straight": "floor: straight on"}
"""Of predictions, by how their metrics begin."""
NONE = "–"

Results = Mapping[str, list[Result]]


class Tested(TypedDict):
    """The fields of test.json that the tables have."""

    mota: float
    motp: float
    ahead1_mota: float
    ahead3_mota: float
    copy1_mota: float
    copy3_mota: float
    colour_mota: float
    mse: float
    ahead1_mse: float
    copy1_mse: float


def write_report(path: Path, experiment: Experiment) -> Report:
    """Tables of the tested runs at `path`."""
    results = by_variant(read_results(path), LABELS)
    report = Report("Sprites-MOT: objects, and how they are tracked")
    report.add(*changes.notice(results.values(), experiment))
    report.add(tracking_table(results), ahead_table(results))
    report.add(*learning(results, LABELS, CURVES, "MOTA", "Validation videos"))
    report.add(*changes.provenance(results.values(), experiment))
    return report


def cell(runs: Sequence[Result], metric: str, style: str = ".1f") -> str:
    """Median and range of the seeds."""
    return median_range([run.number(metric) for run in runs], style)


def tracking_table(results: Results) -> Table:
    """The leaderboard's metrics, of masks that a model has once it has seen a frame."""
    rows = [
        [LABELS.get(name, name), *(cell(runs, metric) for metric in METRICS.values())]
        for name, runs in results.items()
    ]
    first = next(iter(results.values()))[:1]
    rows.append(
        ["floor: colours alone", *(cell(first, f"colour_{metric}") for metric in METRICS.values())]
    )
    rows += [[name, *numbers.split()] for name, numbers in LEADERBOARD.items()]
    caption = (
        "Masks once a frame was seen, by the benchmark's protocol, in per cent: MD, MT, mostly "
        "detected and mostly tracked sprites; IDS, switches; FP, false positives. Median over "
        "seeds (range)."
    )
    return Table(["Model", *METRICS], rows, caption)


def ahead_table(results: Results) -> Table:
    """The same for frames to come, where the dynamics decide."""
    columns = [f"ahead{h}_{metric}" for h in AHEAD for metric in ("mota", "motp")]
    rows = [
        [
            LABELS.get(name, name),
            *(cell(runs, column) for column in columns),
            cell(runs, "ahead1_mse", ".4f"),
        ]
        for name, runs in results.items()
    ]
    first = next(iter(results.values()))[:1]
    for floor, name in FLOORS.items():
        cells = [cell(first, column.replace("ahead", floor)) for column in columns]
        rows.append([name, *cells, cell(first, "copy1_mse", ".4f") if floor == "copy" else NONE])
    head = [f"{metric}, {h} ahead" for h in AHEAD for metric in ("MOTA", "MOTP")]
    caption = (
        "Masks predicted one and three frames ahead, and the mean squared error of the next frame. "
        "What was there: the true masks of one and three frames before; straight on: true sprites "
        "of those frames that go on as they went last. Median over seeds (range)."
    )
    return Table(["Model", *head, "MSE"], rows, caption, "ahead")
