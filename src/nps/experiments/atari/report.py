"""The report on Atari: the paper's table beside ours, with the baselines of its metric.

All games are in one table. Each game has its own baselines: the first observation as the prediction
(in pixels), and a transition that leaves a model's slots as they are.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nps.experiments import changes
from nps.experiments.experiment import Experiment
from nps.experiments.results import Result, by_variant, read_results
from nps.experiments.summaries import values
from nps.experiments.world_models.config import HORIZONS
from nps.experiments.world_models.report import (
    COLUMNS,
    METRICS,
    hidden_table,
    percent,
    ranking_cells,
)
from nps.inspect import figures
from nps.inspect.report import Figure, Part, Report, Table
from nps.worlds.atari_games import GAMES

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

LABELS = {
    "atari-nps": "NPS",
    "atari-nps-5": "NPS, 5 rules",
    "atari-gnn": "GNN",
    "atari-nps-aligned": "NPS, aligned negatives",
    "atari-gnn-aligned": "GNN, aligned negatives",
    "atari-parallel-aligned": "parallel NPS, aligned negatives",
    "atari-nps-running": "NPS, running statistics",
    "atari-gnn-running": "GNN, running statistics",
}
TITLES = {
    "pong": "Pong",
    "space_invaders": "Space Invaders",
    "freeway": "Freeway",
    "breakout": "Breakout",
    "qbert": "Q*bert",
}
PAPER = {
    "pong": {
        "NPS": "44.1 ± 8.3, 22.2 ± 7.6, 15.6 ± 5.7, 60.6 ± 7.9, 38.7 ± 9.0, 30.2 ± 7.5",
        "GNN": "30.4 ± 11.2, 11.6 ± 6.1, 7.2 ± 4.1, 48.8 ± 10.4, 25.5 ± 8.3, 18.9 ± 6.2",
    },
    "space_invaders": {
        "NPS": "61.3 ± 11.6, 32.8 ± 9.2, 21.4 ± 7.1, 74.6 ± 9.4, 53.0 ± 9.1, 39.2 ± 8.5",
        "GNN": "68.8 ± 8.4, 21.7 ± 6.8, 14.7 ± 4.9, 79.9 ± 5.7, 39.6 ± 7.4, 31.0 ± 6.3",
    },
}
"""Appendix "Atari", 50 seeds: H@1 after 1, 5 and 10 steps, then MRR."""

COPY = "copy the input"
LAST = f"h1_{max(HORIZONS)}"
PAIR = ("atari-nps", "atari-gnn")
"""The paper's comparison."""
ALIGNED_PAIRS = {
    "aligned negatives": ("atari-nps-aligned", "atari-gnn-aligned"),
    "aligned, parallel NPS": ("atari-parallel-aligned", "atari-gnn-aligned"),
}
"""The same comparison with time-aligned negatives, in the short table for Pong alone."""
Games = dict[str, dict[str, list[Result]]]
Panel = dict[str, dict[int, np.ndarray]]
"""line -> steps -> H@1 of the seeds"""


def write_report(path: Path, experiment: Experiment) -> Report:
    """Tables and a figure of the tested runs at `path`, of one game or several."""
    games = read_games(path)
    report = Report("World models of Atari games")
    groups = [runs for presets in games.values() for runs in presets.values()]
    report.add(*changes.notice(groups, experiment), *ranking_figure(games), summary_table(games))
    named = {
        f"{TITLES[game]}: {LABELS.get(preset, preset)}": runs
        for game, presets in games.items()
        for preset, runs in presets.items()
    }
    report.add(hidden_table(named), *short_table(games))
    report.add(*changes.provenance(groups, experiment))
    return report


def short_table(games: Games) -> list[Part]:
    """NPS against the GNN after the most steps, for a page of one screen.

    Games that have both models, their mean, then Pong with aligned negatives; empty if there are
    no such games.
    """
    paired = {game: presets for game, presets in games.items() if set(PAIR) <= set(presets)}
    rows = [
        [TITLES[game], *short_cells(presets, PAIR), *paper_h1(game)]
        for game, presets in paired.items()
    ]
    if len(paired) > 1:
        rows.append([f"Mean of {len(paired)}", *mean_h1(paired), "–", "–", "–"])
    pong = games.get("pong", {})
    rows += [
        [f"Pong, {settings}", *short_cells(pong, pair), "–", "–"]
        for settings, pair in ALIGNED_PAIRS.items()
        if set(pair) <= set(pong)
    ]
    head = [f"H@1 after {max(HORIZONS)} steps", "NPS", "GNN", COPY, "paper's NPS", "paper's GNN"]
    caption = "NPS against the GNN in short. Mean ± standard deviation over seeds, in per cent."
    return [Table(head, rows, caption, "short")] if rows else []


def short_cells(presets: Mapping[str, list[Result]], pair: tuple[str, str]) -> list[str]:
    """H@1 of NPS, of the GNN and of the copied input, in one game."""
    ours = [percent(presets[preset], LAST) for preset in pair]
    return [*ours, percent(presets[pair[0]][:1], f"copy_{LAST}")]


def paper_h1(game: str) -> list[str]:
    """The paper's H@1 of NPS and GNN after the most steps."""
    if game not in PAPER:
        return ["–", "–"]
    return [PAPER[game][model].split(", ")[METRICS.index(LAST)] for model in ("NPS", "GNN")]


def mean_h1(games: Games) -> list[str]:
    """The mean over games of NPS's and the GNN's H@1 after the most steps."""
    return [mean_of(preset, games)[METRICS.index(LAST)] for preset in PAIR]


def read_games(path: Path) -> Games:
    """game -> variant -> its runs; games in the order of `GAMES`, variants in that of `LABELS`."""
    results = read_results(path)
    games: Games = {}
    for game in GAMES:
        found = by_variant([run for run in results if run.config["game"] == game])
        if found:
            order = dict.fromkeys([*(name for name in LABELS if name in found), *found])
            games[game] = {name: found[name] for name in order}
    return games


def summary_table(games: Games) -> Table:
    """The paper's rows, ours, and the baselines, game by game; then the mean of several games."""
    rows = []
    for game, presets in games.items():
        title = TITLES[game]
        for model, cells in PAPER.get(game, {}).items():
            rows.append([f"{title}: paper's {model}", *cells.split(", ")])
        for preset, runs in presets.items():
            name = f"{title}: {LABELS.get(preset, preset)}"
            rows.append([name, *ranking_cells(runs)])
            rows.append([f"{name}, nothing moves", *ranking_cells(runs, "identity_")])
        some = next(iter(presets.values()))[:1]
        rows.append([f"{title}: {COPY}", *ranking_cells(some, "copy_")])
        strict = ranking_cells(some, "copy_", "_strict")
        rows.append([f"{title}: {COPY}, ties are misses", *strict])
    if len(games) > 1:
        rows += mean_rows(games)
    caption = (
        "Test episodes, mean ± standard deviation over seeds, in per cent, after 1, 5 and 10 "
        "steps; ties are hits, as in C-SWM, unless stated otherwise. Paper: 50 seeds. Nothing "
        "moves: the same slots and a transition that leaves them as they are. Copy the input: the "
        "first observation as the prediction, in pixels."
    )
    return Table(["Model", *COLUMNS], rows, caption)


ALIGNED = ", aligned negatives"


def ranking_figure(games: Games) -> list[Part]:
    """H@1 over steps, one panel per game, and the mean of the games, as the paper draws it."""
    if not figures.available():
        return []
    bands = "Lines: mean over seeds; bands: standard deviation."
    copies = "Dashed: the first observation as the prediction, in pixels."
    captions = {
        "ranking": f"H@1 with negatives of a shuffled batch, as in the paper. {bands} {copies}",
        "ranking-aligned": f"H@1 with time-aligned negatives. {bands} {copies}",
    }
    parts: list[Part] = []
    for name, caption in captions.items():
        panels = ranking_panels(games, aligned=name != "ranking")
        if panels:
            drawn = figures.means_over(panels, "steps predicted", "H@1 (%)", COPY)
            parts.append(Figure(name, drawn, caption))
    return parts


def ranking_panels(games: Games, aligned: bool) -> dict[str, Panel]:
    """Title of the game -> its lines, with negatives of one kind; empty if there are none."""
    panels: dict[str, Panel] = {}
    for game, presets in games.items():
        lines = {
            label.removesuffix(ALIGNED): over_steps(runs)
            for preset, runs in presets.items()
            if (label := LABELS.get(preset, preset)).endswith(ALIGNED) == aligned
        }
        if lines:
            copied = over_steps(next(iter(presets.values()))[:1], "copy_")
            published = {} if aligned else paper_lines(game)
            panels[TITLES[game]] = {**lines, **published, COPY: copied}
    if len(panels) > 1:
        panels[f"Mean of {len(panels)}"] = mean_panel(list(panels.values()))
    return panels


def paper_lines(game: str) -> Panel:
    """The paper's mean H@1 after each number of steps."""
    return {
        f"{figures.PAPER}{model}": {
            step: np.array([float(cell.split(" ± ")[0])])
            for step, cell in zip(HORIZONS, cells.split(", "), strict=False)
        }
        for model, cells in PAPER.get(game, {}).items()
    }


def mean_panel(panels: Sequence[Panel]) -> Panel:
    """The mean over games of each line and step that all of them have."""
    first = panels[0]
    return {
        line: {
            step: np.mean([[panel[line][step].mean()] for panel in panels], axis=0)
            for step in first[line]
            if all(step in panel[line] for panel in panels)
        }
        for line in first
        if all(line in panel for panel in panels)
    }


def over_steps(runs: list[Result], baseline: str = "") -> dict[int, Float[ndarray, "S"]]:
    """H@1 of the seeds in per cent, after each number of steps; `baseline`: its prefix, if any."""
    metrics = {step: f"{baseline}h1_{step}" for step in HORIZONS}
    return {
        step: 100 * np.array(values(runs, metric))
        for step, metric in metrics.items()
        if all(metric in run.test for run in runs)
    }


def mean_rows(games: Games) -> list[list[str]]:
    """The mean over games of each preset that all of them have."""
    shared = [p for p in next(iter(games.values())) if all(p in ours for ours in games.values())]
    return [
        [f"Mean of {len(games)}: {LABELS.get(preset, preset)}", *mean_of(preset, games)]
        for preset in shared
    ]


def mean_of(preset: str, games: Mapping[str, Mapping[str, list[Result]]]) -> list[str]:
    means = [
        [statistics.mean(values(ours[preset], metric)) for ours in games.values()]
        for metric in METRICS
    ]
    return [f"{100 * statistics.mean(each):.1f}" for each in means]
