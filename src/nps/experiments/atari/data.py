"""Find or make the file of a game, for `nps data atari` and before `nps run atari`."""

from __future__ import annotations

import functools
import os
from importlib.util import find_spec
from pathlib import Path

from nps.errors import UserError, say
from nps.experiments.atari.config import Config
from nps.files import replace_file
from nps.training.progress import ProgressLine
from nps.worlds import atari_file
from nps.worlds.atari import FOLDER, NotFound, file_name, find
from nps.worlds.atari_games import Name, Settings
from nps.worlds.atari_play import Emulator, play_all
from nps.worlds.collection import cache_folder


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
    path = folder / file_name(game)
    if path.exists():
        return f"{path}: {_check(path, game, settings):,} bytes, already there"
    try:
        file, _ = find(game, settings)
    except NotFound:
        file = None
        Emulator(game)  # fails before a folder is made
    try:
        folder.mkdir(parents=True, exist_ok=True)  # fails before minutes are spent
        data = _play(game, settings, workers) if file is None else file.data
        replace_file(path, data)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    return f"{path}: {len(data):,} bytes, {'played' if file is None else f'from {file.where}'}"


def _check(path: Path, game: Name, settings: Settings) -> int:
    """The size of a file with these settings; any other file is refused, not overwritten."""
    try:
        data = path.read_bytes()
        atari_file.unpack(data, game, settings)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}; move it away first") from None
    return len(data)


def _play(game: Name, settings: Settings, workers: int) -> bytes:
    with ProgressLine(game, settings.train + settings.test, 0, "episodes") as line:
        return atari_file.pack(game, settings, play_all(game, settings, workers, line.update))
