"""The report on blocks: H@1 beside its baseline, what H@1 hides, and the number of stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nps.experiments import changes
from nps.experiments.experiment import Experiment
from nps.experiments.results import Result, by_variant, read_results
from nps.experiments.summaries import values, wall_time
from nps.experiments.world_models.config import HORIZONS
from nps.experiments.world_models.report import percent
from nps.inspect import figures
from nps.inspect.report import Figure, Part, Report, Table

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

STAGES = {
    "Paper's world": {1: "blocks-nps", **{k: f"blocks-nps-{k}" for k in (2, 3, 5)}},
    "Fixed palette": {1: "blocks-fixed-nps", **{k: f"blocks-fixed-nps-{k}" for k in (2, 3, 5)}},
}
"""NPS with 1, 2, 3 and 5 stages, as in the paper's comparison."""
LEARNING = {
    "NPS": "blocks-fixed-nps",
    "GNN": "blocks-fixed-gnn",
    "GNN, factored actions": "blocks-fixed-gnn-factored",
}
"""The learning curves: presets of the world where blocks look alike, so that all of them learn."""
CONTROLS = {
    "blocks-nps-float32": "NPS, float32",
    "blocks-gnn-float32": "GNN, float32",
    "blocks-nps-four-directions": "NPS, four directions",
    "blocks-gnn-four-directions": "GNN, four directions",
    "blocks-nps-episode-first": "NPS, 50 epochs with episode negatives",
    "blocks-nps-batch-after": "NPS, then 50 with batch negatives",
    "blocks-gnn-episode-first": "GNN, 50 epochs with episode negatives",
    "blocks-gnn-batch-after": "GNN, then 50 with batch negatives",
    "blocks-observed-nps": "Observed: NPS",
    "blocks-observed-gnn": "Observed: GNN",
    "blocks-fixed-unobserved-nps": "Fixed unobserved: NPS",
    "blocks-fixed-unobserved-gnn": "Fixed unobserved: GNN",
}
"""Rows of the long tables alone: they vary what the main comparison holds fixed."""
LABELS = {
    "shapes-gnn": "2D shapes: C-SWM",
    "blocks-nps": "NPS (the text's rules, C-SWM's perception)",
    **{f"blocks-nps-{k}": f"NPS, {k} stages" for k in (2, 3, 5)},
    "blocks-gnn": "GNN",
    "blocks-gnn-factored": "GNN, factored actions",
    "blocks-nps-episode": "NPS, episode negatives",
    "blocks-gnn-episode": "GNN, episode negatives",
    "blocks-fixed-nps": "Fixed palette: NPS",
    **{f"blocks-fixed-nps-{k}": f"Fixed palette: NPS, {k} stages" for k in (2, 3, 5)},
    "blocks-fixed-nps-linear": "Fixed palette: NPS, linear",
    "blocks-fixed-gnn": "Fixed palette: GNN",
    "blocks-fixed-gnn-factored": "Fixed palette: GNN, factored actions",
    "blocks-slots-nps": "Slot attention: NPS (the text's rules and encoder)",
    "blocks-slots-gnn": "Slot attention: GNN",
    "blocks-fixed-slots-nps": "Fixed palette, slot attention: NPS",
    "blocks-fixed-slots-gnn": "Fixed palette, slot attention: GNN",
    "blocks-best": "Fixed palette: NPS, ours",
    **CONTROLS,
}
SHORT = {
    "blocks-nps": "paper's world: NPS",
    "blocks-gnn": "paper's world: GNN",
    "blocks-nps-episode": "paper's world, episode negatives: NPS",
    "blocks-gnn-episode": "paper's world, episode negatives: GNN",
    "blocks-fixed-nps": "fixed palette: NPS",
    "blocks-fixed-gnn": "fixed palette: GNN",
    "blocks-best": "fixed palette: parallel NPS (ours)",
}
"""The rows of the short table: world and model."""

Results = Mapping[str, list[Result]]


def write_report(path: Path, experiment: Experiment) -> Report:
    """Tables and figures of the tested runs at `path`."""
    results = by_variant(read_results(path), LABELS)
    report = Report("World models of blocks")
    report.add(*changes.notice(results.values(), experiment))
    report.add(summary_table(results), moves_table(results), *short_table(results))
    report.add(*metric_figure(results), *stages(results), *learning(results))
    report.add(*changes.provenance(results.values(), experiment))
    return report


def short_table(results: Results) -> list[Part]:
    """The main comparison, for a page of one screen; empty without any of its models."""
    last = max(HORIZONS)
    metrics = (f"h1_{last}", f"identity_h1_{last}", "moves_free", "push_moved")
    rows = [
        [
            label,
            *(percent(results[name], metric) for metric in metrics),
            f"{results[name][0].test['transition_parameters']:,}",
        ]
        for name, label in SHORT.items()
        if name in results
    ]
    columns = ["nothing moves", "free moves", "pushed block moves", "parameters"]
    caption = "The main comparison in short. Mean ± standard deviation over seeds, in per cent."
    head = ["world, model", f"H@1 after {last} steps", *columns]
    return [Table(head, rows, caption, "short")] if rows else []


def summary_table(results: Results) -> Table:
    """C-SWM's metrics, beside the baseline that leaves the slots as they are."""
    rows = []
    for name, runs in results.items():
        last = max(step for step in HORIZONS if f"h1_{step}" in runs[0].test)
        numbers = [
            percent(runs, f"{metric}_{step}") for step in HORIZONS for metric in ("h1", "mrr")
        ]
        floor, ties = percent(runs, f"identity_h1_{last}"), percent(runs, f"h1_strict_{last}")
        rows.append([LABELS.get(name, name), *numbers, floor, ties, wall_time(runs)])
    caption = (
        "Test set, mean ± standard deviation over seeds, in per cent. H@1 and MRR after 1, 5 and "
        "10 steps as in C-SWM, where a tie is a hit. Nothing moves: H@1 after the most steps of a "
        "transition that leaves these slots as they are. Strict: a tie is a miss."
    )
    each = [f"{metric}, {step}" for step in HORIZONS for metric in ("H@1", "MRR")]
    return Table(["Model", *each, "Nothing moves", "Strict", "Training"], rows, caption)


def moves_table(results: Results) -> Table:
    """Whether a model predicts what actions do, and whether its trace shows who pushed."""
    metrics = ("moves_free", "moves_push", "moves_no_op", "push_moved", "push_context")
    rows = [
        [
            LABELS.get(name, name),
            *(percent(runs, metric) for metric in metrics),
            *(percent(runs, f"h1_episode_strict_{step}") for step in HORIZONS),
            f"{runs[0].test['transition_parameters']:,}",
        ]
        for name, runs in results.items()
    ]
    caption = (
        "Free, push, no-op: share of actions whose prediction is nearest to what the action does, "
        "among what all actions do. Pushed moves: share of pushes in which the pushed block too is "
        "predicted to move; the pusher's move alone is enough for Push. Pusher is context: "
        "share of pushes in which the rule that last changed the pushed block had the pusher as "
        "its context. In its episode: "
        "H@1 among the states of the episode, ties are misses. Parameters: of the transition. "
        "Mean ± standard deviation over seeds."
    )
    ranked = [f"In its episode, {step}" for step in HORIZONS]
    head = [
        "Model",
        "Free",
        "Push",
        "No-op",
        "Pushed moves",
        "Pusher is context",
        *ranked,
        "Parameters",
    ]
    return Table(head, rows, caption, "moves")


def metric_figure(results: Results) -> list[Part]:
    """Does H@1 show who knows what actions do? H@1 of each seed over the free moves it predicts."""
    last = max(HORIZONS)
    metrics = {
        "ranked among all episodes": f"h1_{last}",
        "ranked within the same episode": f"h1_episode_strict_{last}",
    }
    groups: dict[str, list[Result]] = {}
    for run in (run for name, runs in results.items() if name not in CONTROLS for run in runs):
        if {"moves_free", *metrics.values()} <= set(run.test):
            groups.setdefault(group(run), []).append(run)
    if not groups or not figures.available():
        return []

    def of(runs: list[Result], metric: str) -> list[float]:
        return [100 * value for value in values(runs, metric)]

    panels = {
        name: {each: (of(runs, "moves_free"), of(runs, metric)) for each, runs in groups.items()}
        for name, metric in metrics.items()
    }
    caption = (
        "One point a seed. Left: the paper's metric, among states of all episodes. Right: among "
        "the states of the same episode. A model that predicts no move can have a high H@1."
    )
    axes = ("free moves predicted (%)", f"H@1 after {last} steps (%)")
    return [Figure("metric", figures.percent_points(panels, *axes), caption)]


def group(run: Result) -> str:
    """World, negatives and transition."""
    config = run.config
    world = {"fixed-palette": "fixed palette", "shapes": "2D shapes"}.get(
        config["mode"], "paper's world"
    )
    if config["negatives"] != "batch":
        world += f", {config['negatives']} negatives"
    kinds = {"snps": "NPS", "pnps": "parallel NPS", "gnn": "GNN"}
    return f"{world}: {kinds.get(config['transition'], config['transition'])}"


def stages(results: Results) -> list[Part]:
    """Does it help to apply rules several times in a step? (paper, appendix)"""
    lines = {
        world: {k: results[name] for k, name in names.items() if name in results}
        for world, names in STAGES.items()
    }
    lines = {world: runs for world, runs in lines.items() if len(runs) > 1}
    if not lines:
        return []
    rows = [
        [
            f"{world}, {k} stage{'s' if k > 1 else ''}",
            *(percent(runs, f"{m}_{s}") for s in HORIZONS for m in ("h1", "mrr")),
            percent(runs, "moves_push"),
        ]
        for world, by_stages in lines.items()
        for k, runs in by_stages.items()
    ]
    each = [f"{metric}, {step}" for step in HORIZONS for metric in ("H@1", "MRR")]
    caption = "NPS with one rule, by stages. Mean ± standard deviation over seeds, in per cent."
    parts: list[Part] = [Table(["Stages", *each, "Push"], rows, caption)]
    if figures.available():
        parts.append(stages_figure(lines))
    return parts


def stages_figure(lines: Mapping[str, Mapping[int, list[Result]]]) -> Figure:
    """H@1 over stages, one panel per world, with the identity baseline after the most steps."""
    last = max(HORIZONS)
    floor = f"nothing moves, {last} steps"
    after = {step: f"NPS, after {step} step{'s' if step > 1 else ''}" for step in HORIZONS}
    metrics = {after[step]: f"h1_{step}" for step in reversed(HORIZONS)}
    metrics[floor] = f"identity_h1_{last}"
    panels = {
        world: {
            line: {
                k: 100 * np.array(values(runs, metric))
                for k, runs in by_stages.items()
                if all(metric in run.test for run in runs)
            }
            for line, metric in metrics.items()
        }
        for world, by_stages in lines.items()
    }
    caption = f"H@1 by stages: mean over seeds; band: standard deviation after {last} steps"
    return Figure("stages", figures.means_over(panels, "stages", "H@1 (%)", floor), caption)


def learning(results: Results) -> list[Part]:
    """The loss on validation episodes over training."""
    lines = {
        line: losses
        for line, name in LEARNING.items()
        if name in results and (losses := validation_losses(results[name]))
    }
    if len(lines) < 2 or not figures.available():
        return []
    caption = "Loss on validation episodes: mean over seeds; bands: range of the seeds"
    drawn = figures.means_over({"Fixed palette": lines}, "epoch", "validation loss", log=True)
    return [Figure("learning", drawn, caption)]


def validation_losses(runs: list[Result]) -> dict[int, Float[ndarray, "S"]]:
    """epoch -> the losses of the seeds, in epochs in which all were validated."""
    curves = [
        {row["epoch"]: row["validation"]["loss"] for row in run.curve() if "validation" in row}
        for run in runs
    ]
    shared = [epoch for epoch in curves[0] if all(epoch in curve for curve in curves)]
    return {epoch: np.array([curve[epoch] for curve in curves]) for epoch in shared}
