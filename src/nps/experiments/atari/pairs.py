"""NPS against the GNN in each setting, judged by two standard errors of the difference."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nps.experiments.atari.games import TITLES, Games
from nps.experiments.claims import STANDARD_ERRORS
from nps.experiments.summaries import values
from nps.experiments.world_models.config import HORIZONS
from nps.inspect.report import Table

Pair = tuple[str, str]
"""The presets of a comparison: with rules, and the GNN."""

PAPER_PAIR: Pair = ("atari-nps", "atari-gnn")
PAIRS: Mapping[str, Pair] = {
    "3 slots of 4": PAPER_PAIR,
    "3 slots of 4, 5 rules": ("atari-nps-5", "atari-gnn"),
    "3 slots of 64": ("atari-3x64-nps", "atari-3x64-gnn"),
    "3 slots of 64, 5 rules": ("atari-3x64-nps-5", "atari-3x64-gnn"),
    "5 slots of 64": ("atari-5x64-nps", "atari-5x64-gnn"),
    "5 slots of 64, 5 rules": ("atari-5x64-nps-5", "atari-5x64-gnn"),
    "slot attention": ("atari-slots-nps", "atari-slots-gnn"),
    "C-SWM to the letter": ("atari-cswm-nps", "atari-cswm-gnn"),
    "aligned negatives": ("atari-nps-aligned", "atari-gnn-aligned"),
    "aligned, parallel NPS": ("atari-parallel-aligned", "atari-gnn-aligned"),
    "running statistics": ("atari-nps-running", "atari-gnn-running"),
}
"""setting -> its comparison."""

RANKINGS = {"": "H@1", "_strict": "strict"}
"""How ties are counted -> its name in the columns."""


class Difference(NamedTuple):
    """The means over seeds and games, and the standard error of their difference, in per cent."""

    nps: float
    gnn: float
    error: float
    """Infinite with a single seed."""

    @property
    def verdict(self) -> str:
        """Whether NPS is ahead or behind by more than two standard errors."""
        difference = self.nps - self.gnn
        if abs(difference) <= STANDARD_ERRORS * self.error:
            return "cannot be told"
        return "ahead" if difference > 0 else "behind"


def with_pair(games: Games, pair: Pair) -> Games:
    """The games that have runs of both."""
    return {game: presets for game, presets in games.items() if set(pair) <= set(presets)}


def compare(games: Games, pair: Pair, metric: str) -> Difference:
    """Both models, averaged over games that have both."""
    samples = [
        [[100 * value for value in values(presets[preset], metric)] for preset in pair]
        for presets in games.values()
    ]
    nps, gnn = (
        statistics.fmean(map(statistics.fmean, model)) for model in zip(*samples, strict=True)
    )
    squares = sum(_squared_error(numbers) for both in samples for numbers in both)
    return Difference(nps, gnn, math.sqrt(squares) / len(samples))


def _squared_error(numbers: Sequence[float]) -> float:
    """The squared standard error of a mean over seeds."""
    return statistics.variance(numbers) / len(numbers) if len(numbers) > 1 else math.inf


def judged_table(games: Games) -> list[Table]:
    """A row for each game and setting with both models, and for the mean of several games; empty
    if no game has both."""
    rows = []
    for setting, pair in PAIRS.items():
        paired = with_pair(games, pair)
        for game, presets in paired.items():
            rows.append([f"{TITLES[game]}: {setting}", *judged_cells({game: presets}, pair)])
        if len(paired) > 1:
            rows.append([f"Mean of {len(paired)}: {setting}", *judged_cells(paired, pair)])
    columns = [f"{name}, {step}" for name in RANKINGS.values() for step in HORIZONS]
    caption = (
        "NPS and the GNN, mean H@1 over seeds in per cent after 1, 5 and 10 steps, and whether NPS "
        "is ahead or behind by more than two standard errors of the difference. Strict: ties are "
        "misses."
    )
    return [Table(["NPS, GNN", *columns], rows, caption, "judged")] if rows else []


def judged_cells(games: Games, pair: Pair) -> list[str]:
    """`12.3, 45.6: behind` for each ranking and number of steps; a dash if it was not measured."""
    runs = [run for presets in games.values() for preset in pair for run in presets[preset]]
    cells = []
    for metric in (f"h1{ties}_{step}" for ties in RANKINGS for step in HORIZONS):
        if all(metric in run.test for run in runs):
            found = compare(games, pair, metric)
            cells.append(f"{found.nps:.1f}, {found.gnn:.1f}: {found.verdict}")
        else:
            cells.append("–")
    return cells
