"""`nps data atari`: play the games at random, in several processes, into one file per game."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

from nps.commands.shared import about, require, use_data
from nps.errors import UserError
from nps.flags import parse
from nps.worlds.atari_games import Name, Settings


@dataclass(frozen=True)
class AtariArgs:
    game: Literal["all", Name] = "all"
    """One of the five games, or all."""
    to: Path | None = None
    """Write into this folder instead of the cache, e.g. to copy it to another machine."""
    episodes: Annotated[int, tyro.conf.arg(help="Episodes for training.")] = Settings.train
    test_episodes: Annotated[int, tyro.conf.arg(help="Episodes for testing.")] = Settings.test
    seed: int = Settings.seed
    """Seed of the random actions."""
    workers: int = 0
    """Processes that play; 0 means one per core. The episodes do not depend on it."""
    data: Path | None = None
    """Folder that may already hold the files (default: NPS_DATA)."""


def atari(args: Sequence[str]) -> None:
    """Play Atari games at random and record the frames, one file per game.

    A game is not played again if its file, with the same settings, is in the folder --data or
    NPS_DATA or in the cache. Needs the extra `atari`; reading the files does not.

    Examples:
      nps data atari
      nps data atari --game pong --workers 4
      nps data atari --to /media/stick/atari
      nps data atari --game qbert --episodes 50 --test-episodes 10 --to /tmp/small
    """
    from nps.experiments.atari.data import provide
    from nps.worlds.atari import FOLDER
    from nps.worlds.collection import cache_folder

    options = parse(AtariArgs, args, prog="nps data atari", about=about(atari))
    require(options.workers >= 0, f"--workers: got {options.workers}, expected at least 0")
    try:
        settings = Settings(options.episodes, options.test_episodes, options.seed)
    except ValueError as error:
        raise UserError(f"nps data atari: {error}") from None
    use_data(options.data)
    folder = cache_folder() / FOLDER if options.to is None else options.to.expanduser()
    games: tuple[Name, ...] = get_args(Name) if options.game == "all" else (options.game,)
    for game in games:
        print(provide(game, settings, folder, options.workers or os.cpu_count() or 1))
    if options.to is not None:
        print(f"Written to {folder}; use it with --data or NPS_DATA.")
