"""The figures of the report on Atari: H@1 over predicted steps, a panel for each game.

The paper draws the mean over games (its figure "Action-Conditioned World Models", right).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nps.experiments.atari.games import COPY, PAPER, TITLES, Games
from nps.experiments.results import Result
from nps.experiments.summaries import values
from nps.experiments.world_models.config import HORIZONS
from nps.inspect import figures
from nps.inspect.report import Figure, Part

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

Panel = dict[str, dict[int, np.ndarray]]
"""line -> steps -> H@1 of the seeds"""


class Drawn(NamedTuple):
    """A figure of H@1 over steps."""

    caption: str
    lines: dict[str, str]
    """preset -> its name in the figure."""
    paper: bool = True
    """Whether the paper's numbers are beside it."""


FIGURES = {
    "ranking": Drawn(
        "H@1 with C-SWM's slots, three of 4.",
        {"atari-nps": "NPS", "atari-nps-5": "NPS, 5 rules", "atari-gnn": "GNN"},
    ),
    "ranking-slots": Drawn(
        "H@1 with the paper's own encoder, slot attention to five slots of 64.",
        {"atari-slots-nps": "NPS", "atari-slots-gnn": "GNN"},
    ),
    "ranking-aligned": Drawn(
        "H@1 with time-aligned negatives.",
        {
            "atari-nps-aligned": "NPS",
            "atari-gnn-aligned": "GNN",
            "atari-parallel-aligned": "parallel NPS",
        },
        paper=False,
    ),
}


def ranking_figure(games: Games) -> list[Part]:
    """H@1 over steps, one panel per game, and the mean of the games, as the paper draws it."""
    if not figures.available():
        return []
    bands = "Lines: mean over seeds; bands: standard deviation."
    copies = "Dashed: the first observation as the prediction, in pixels."
    parts: list[Part] = []
    for name, wanted in FIGURES.items():
        panels = ranking_panels(games, wanted)
        if panels:
            drawn = figures.means_over(panels, "steps predicted", "H@1 (%)", COPY)
            parts.append(Figure(name, drawn, f"{wanted.caption} {bands} {copies}"))
    return parts


def ranking_panels(games: Games, wanted: Drawn) -> dict[str, Panel]:
    """Title of the game -> its lines; empty if there are none."""
    panels: dict[str, Panel] = {}
    for game, presets in games.items():
        lines = {
            name: over_steps(presets[preset])
            for preset, name in wanted.lines.items()
            if preset in presets
        }
        if lines:
            copied = over_steps(next(iter(presets.values()))[:1], "copy_")
            published = paper_lines(game) if wanted.paper else {}
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
