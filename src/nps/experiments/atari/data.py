"""Find or make the file of a game, for `nps data atari` and before `nps run atari`."""

from __future__ import annotations

import functools
import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from nps.errors import say
from nps.experiments.atari.config import Config
from nps.training.progress import ProgressLine
from nps.worlds import atari_file
from nps.worlds.atari import FOLDER, find, made_file
from nps.worlds.atari_games import Name, Settings
from nps.worlds.atari_play import Emulator, play_all
from nps.worlds.collection import cache_folder
from nps.worlds.made_file import NotFound


def prepare(config: Config) -> None:
    """Play the game into the cache, if it has no file yet and an emulator is installed."""
    _prepare(config.game, config.settings())


@functools.lru_cache
def _prepare(game: Name, settings: Settings) -> None:
    try:
        find(game, settings)
    except NotFound:
        if find_spec("ale_py") is None:
            raise
        folder = cache_folder() / FOLDER
        episodes = settings.train + settings.test
        say(f"playing {episodes} episodes of {game}, once, into {folder}")
        say(provide(game, settings, folder, os.cpu_count() or 1))


def provide(game: Name, settings: Settings, folder: Path, workers: int) -> str:
    """Make sure that the file of a game is in the folder; returns a line about its origin."""
    able, play = partial(Emulator, game), partial(_play, game, settings, workers)
    return made_file(game, settings).provide(folder, able, play, "played")


def _play(game: Name, settings: Settings, workers: int) -> bytes:
    with ProgressLine(game, settings.train + settings.test, 0, "episodes") as line:
        return atari_file.pack(game, settings, play_all(game, settings, workers, line.update))
