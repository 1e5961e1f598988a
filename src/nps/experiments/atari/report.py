"""The report on Atari: the paper's table beside ours, with the baselines of its metric.

All games are in one table. Each game has its own baselines: the first observation as the prediction
(in pixels), and a transition that leaves a model's slots as they are.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from nps.experiments import changes
from nps.experiments.atari.drawing import ranking_figure
from nps.experiments.atari.games import COPY, LABELS, PAPER, TITLES, Games, read, read_games
from nps.experiments.atari.pairs import (
    PAIRS,
    PAPER_PAIR,
    Pair,
    compare,
    judged_table,
    with_pair,
)
from nps.experiments.experiment import Experiment, Verdict
from nps.experiments.results import runs_of
from nps.experiments.summaries import values
from nps.experiments.world_models.config import HORIZONS
from nps.experiments.world_models.report import (
    COLUMNS,
    METRICS,
    hidden_table,
    percent,
    ranking_cells,
)
from nps.inspect.report import Part, Report, Table, Text

HOLDS = {"ahead": "yes", "behind": "**no**", "cannot be told": "**cannot be told**"}
"""The verdict on NPS -> whether the paper's claim holds."""
LAST = f"h1_{max(HORIZONS)}"
SHORT = (
    "5 slots of 64",
    "slot attention",
    "C-SWM to the letter",
    "aligned negatives",
    "aligned, parallel NPS",
)
"""Settings that the short table shows besides the paper's comparison, averaged over games."""


def write_report(path: Path, experiment: Experiment) -> Report:
    """Tables and a figure of the tested runs at `path`, of one game or several."""
    games, left_out = read(path)
    report = Report("World models of Atari games")
    groups = [runs for presets in games.values() for runs in presets.values()]
    report.add(*map(Text, left_out), *changes.notice(groups, experiment))
    report.add(*ranking_figure(games), summary_table(games))
    named = {
        f"{TITLES[game]}: {LABELS.get(preset, preset)}": runs
        for game, presets in games.items()
        for preset, runs in presets.items()
    }
    report.add(*judged_table(games), hidden_table(named), *short_table(games))
    report.add(*changes.provenance(groups, experiment))
    return report


def verdict(path: Path) -> Verdict:
    """The paper's claim against the published runs at `path`: the mean of games that have both."""
    every = read_games(path)
    games = with_pair(every, PAPER_PAIR)
    if not games:
        runs_of(next(iter(every.values())), *PAPER_PAIR)  # says what is missing
    found = compare(games, PAPER_PAIR, LAST)
    nps, gnn = (f"{mean:.1f}" for mean in (found.nps, found.gnn))
    count = "1 game" if len(games) == 1 else f"{len(games)} games"
    return Verdict(
        subject="five Atari games",
        claim="better than a GNN",
        ours=f"mean H@1 of {count} after {max(HORIZONS)} steps {nps}, GNN {gnn}",
        holds=HOLDS[found.verdict],
    )


def short_table(games: Games) -> list[Part]:
    """NPS against the GNN after the most steps, for a page of one screen.

    Games that have both models of the paper's comparison and their mean, then the mean over games
    in a few other settings; empty if there are no such games.
    """
    paired = with_pair(games, PAPER_PAIR)
    rows = [
        [TITLES[game], *short_cells({game: presets}, PAPER_PAIR), *paper_h1(game)]
        for game, presets in paired.items()
    ]
    if len(paired) > 1:
        rows.append([*mean_cells(paired, PAPER_PAIR), "–", "–"])
    for setting in SHORT:
        others = with_pair(games, PAIRS[setting])
        if others:
            name, *cells = mean_cells(others, PAIRS[setting])
            rows.append([f"{name}, {setting}", *cells, "–", "–"])
    steps = max(HORIZONS)
    head = [f"H@1 after {steps} steps", "NPS", "GNN", "NPS is", COPY, "paper's NPS", "paper's GNN"]
    caption = (
        "NPS against the GNN in short. Mean ± standard deviation over seeds, in per cent. Ahead "
        "and behind: by more than two standard errors of the difference."
    )
    return [Table(head, rows, caption, "short")] if rows else []


def mean_cells(games: Games, pair: Pair) -> list[str]:
    """A row of the short table for several games, or for one: its name, means and floor."""
    if len(games) == 1:
        (game,) = games
        return [TITLES[game], *short_cells(games, pair)]
    found = compare(games, pair, LAST)
    return [
        f"Mean of {len(games)}",
        *(f"{mean:.1f}" for mean in found[:2]),
        found.verdict,
        "–",
    ]


def short_cells(game: Games, pair: Pair) -> list[str]:
    """H@1 of NPS and of the GNN, the verdict, and H@1 of the copied input, in one game."""
    (presets,) = game.values()
    found = compare(game, pair, LAST)
    ours = [percent(presets[preset], LAST) for preset in pair]
    return [*ours, found.verdict, percent(presets[pair[0]][:1], f"copy_{LAST}")]


def paper_h1(game: str) -> list[str]:
    """The paper's H@1 of NPS and GNN after the most steps."""
    if game not in PAPER:
        return ["–", "–"]
    return [PAPER[game][model].split(", ")[METRICS.index(LAST)] for model in ("NPS", "GNN")]


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


def mean_rows(games: Games) -> list[list[str]]:
    """The mean over games of each preset that all of them have."""
    shared = [p for p in next(iter(games.values())) if all(p in ours for ours in games.values())]
    return [
        [f"Mean of {len(games)}: {LABELS.get(preset, preset)}", *mean_of(preset, games)]
        for preset in shared
    ]


def mean_of(preset: str, games: Games) -> list[str]:
    means = [
        [statistics.mean(values(ours[preset], metric)) for ours in games.values()]
        for metric in METRICS
    ]
    return [f"{100 * statistics.mean(each):.1f}" for each in means]
