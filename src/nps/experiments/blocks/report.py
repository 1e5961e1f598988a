"""What the experiment on blocks shows: H@1 beside its floor, and the moves that it hides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nps.experiments.results import Result, provenance, read_results, spread, wall_time
from nps.inspect.report import Report, Table

LABELS = {
    "shapes-gnn": "2D shapes: C-SWM",
    "blocks-nps": "NPS (paper's setting)",
    "blocks-gnn": "GNN",
    "blocks-gnn-factored": "GNN, factored actions",
    "blocks-nps-episode": "NPS, episode negatives",
    "blocks-gnn-episode": "GNN, episode negatives",
    "blocks-fixed-nps": "Fixed palette: NPS",
    "blocks-fixed-nps-linear": "Fixed palette: NPS, linear",
    "blocks-fixed-gnn": "Fixed palette: GNN",
    "blocks-fixed-gnn-factored": "Fixed palette: GNN, factored",
    "blocks-slots-nps": "Slot attention: NPS (paper's setting)",
    "blocks-slots-gnn": "Slot attention: GNN",
    "blocks-fixed-slots-nps": "Fixed palette, slot attention: NPS",
    "blocks-fixed-slots-gnn": "Fixed palette, slot attention: GNN",
}
STEPS = (1, 5, 10)


def write_report(folder: Path) -> Report:
    """Tables from the run logs in `folder`."""
    found = read_results(folder)
    known = [name for name in LABELS if name in found]
    results = {name: found[name] for name in dict.fromkeys([*known, *found])}
    report = Report("World models of blocks")
    report.add(summary_table(results), moves_table(results))
    report.add(*provenance(results))
    return report


def summary_table(results: dict[str, list[Result]]) -> Table:
    """C-SWM's metric, and the model of no motion on the same slots after the most steps."""
    rows = []
    for name, runs in results.items():
        last = max(step for step in STEPS if f"h1_{step}" in runs[0].test)
        numbers = [percent(runs, f"h1_{step}") for step in STEPS]
        floor, ties = percent(runs, f"identity_h1_{last}"), percent(runs, f"h1_strict_{last}")
        rows.append([LABELS.get(name, name), *numbers, floor, ties, wall_time(runs)])
    caption = (
        "Test set, median over seeds (range), in per cent. H@1 after 1, 5 and 10 steps as in "
        "C-SWM, where a tie is a hit. Nothing moves: H@1 after the most steps of a transition "
        "that leaves these slots as they are. Strict: a tie is a miss."
    )
    columns = ["Model", *(f"H@1, {step}" for step in STEPS), "Nothing moves", "Strict", "Training"]
    return Table(columns, rows, caption)


def moves_table(results: dict[str, list[Result]]) -> Table:
    """Do they know what an action does?"""
    kinds = ("moves_free", "moves_push", "moves_no_op")
    rows = [
        [
            LABELS.get(name, name),
            *(percent(runs, kind) for kind in kinds),
            *(percent(runs, f"h1_episode_strict_{step}") for step in STEPS),
            f"{runs[0].test['transition_parameters']:,}",
        ]
        for name, runs in results.items()
    ]
    caption = (
        "Free, push, no-op: share of actions whose prediction is nearest to what the action does, "
        "among what all actions do. In its episode: H@1 among the states of the episode, ties are "
        "misses. Parameters: of the transition."
    )
    among = [f"In its episode, {step}" for step in STEPS]
    return Table(["Model", "Free", "Push", "No-op", *among, "Parameters"], rows, caption)


def percent(runs: list[Result], metric: str) -> str:
    """Median and range, or a dash where it was not measured."""
    if any(metric not in run.test for run in runs):
        return "–"
    scaled = [replace(run, test={metric: 100 * run.test[metric]}) for run in runs]
    return spread(scaled, metric, ".1f")
