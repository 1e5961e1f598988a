"""The runs of a report, game by game: those of games as they are played now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nps.errors import UserError
from nps.experiments.results import Result, by_variant, read_results
from nps.worlds.atari_games import FIRST_GAMES, GAMES, Name, world

LABELS = {
    "atari-nps": "NPS",
    "atari-nps-5": "NPS, 5 rules",
    "atari-gnn": "GNN",
    "atari-3x64-nps": "NPS, 3 slots of 64",
    "atari-3x64-nps-5": "NPS, 3 slots of 64, 5 rules",
    "atari-3x64-gnn": "GNN, 3 slots of 64",
    "atari-5x64-nps": "NPS, 5 slots of 64",
    "atari-5x64-nps-5": "NPS, 5 slots of 64, 5 rules",
    "atari-5x64-gnn": "GNN, 5 slots of 64",
    "atari-slots-nps": "NPS, slot attention",
    "atari-slots-gnn": "GNN, slot attention",
    "atari-cswm-nps": "NPS, C-SWM to the letter",
    "atari-cswm-gnn": "GNN, C-SWM to the letter",
    "atari-nps-aligned": "NPS, aligned negatives",
    "atari-gnn-aligned": "GNN, aligned negatives",
    "atari-parallel-aligned": "parallel NPS, aligned negatives",
    "atari-nps-running": "NPS, running statistics",
    "atari-gnn-running": "GNN, running statistics",
}
TITLES: dict[Name, str] = {
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
"""The baseline that predicts the first observation."""

Games = dict[Name, dict[str, list[Result]]]
"""game -> variant -> its runs; games in the order of `GAMES`, variants in that of `LABELS`."""


class Read(NamedTuple):
    games: Games
    left_out: dict[Name, str]
    """A sentence for each game with runs that were trained on another version of it."""


def read_games(path: Path) -> Games:
    """The tested runs at `path`, of games as they are played now."""
    return read(path).games


def read(path: Path) -> Read:
    """The tested runs at `path`, and what is said of those that are left out."""
    results = read_results(path)
    games: Games = {}
    left_out: dict[Name, str] = {}
    for game in GAMES:
        runs = [run for run in results if run.config["game"] == game]
        now = world(GAMES[game])
        found = by_variant([run for run in runs if world_of(run, game) == now], LABELS)
        if found:
            games[game] = found
        others = [run for run in runs if world_of(run, game) != now]
        if others:
            left_out[game] = why_left_out(game, others)
    if not games:
        raise UserError(f"{path}: {' '.join(left_out.values())}")
    return Read(games, left_out)


def world_of(run: Result, game: Name) -> str:
    """How the game was played for a run; see `nps.worlds.atari_games.world`."""
    recorded = [session["data"] for session in run.provenance if session.get("data")]
    return recorded[-1] if recorded else world(FIRST_GAMES[game])


def why_left_out(game: Name, runs: Sequence[Result]) -> str:
    """The sentence about some runs of an older version of a game."""
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    theirs = ", or ".join(dict.fromkeys(world_of(run, game) for run in runs))
    now = world(GAMES[game])
    return f"{count} of {TITLES[game]} left out: of another version of it ({theirs}; now {now})."
