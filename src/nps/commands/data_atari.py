"""`nps data atari`: play the games at random, by several processes, into a file a game."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import tyro

from nps.commands.shared import about, require, use_data
from nps.errors import UserError
from nps.flags import parse
from nps.worlds.atari_games import Name, Settings


@dataclass(frozen=True)
class AtariArgs:
    game: Name | None = None
    """Only this one; all five without."""
    to: Path | None = None
    """Write into this folder instead of the cache, e.g. to carry it to another machine."""
    episodes: Annotated[int, tyro.conf.arg(help="To train with.")] = Settings.train
    test_episodes: Annotated[int, tyro.conf.arg(help="To evaluate on.")] = Settings.test
    seed: int = Settings.seed
    """Of the actions."""
    workers: int = 0
    """Processes that play; 0 is one a core. The episodes are the same for any number."""
    data: Path | None = None
    """Folder that may hold the files already (else NPS_DATA)."""


def atari(args: Sequence[str]) -> None:
    """Play Atari games at random and keep what was seen, one file a game.

    A game that was played with these settings before, in the folder --data or NPS_DATA or in the
    cache, is not played again. Needs the extra `atari`; reading the files does not.

    Examples:
      nps data atari
      nps data atari --game pong --workers 4
      nps data atari --to /media/stick/atari
      nps data atari --game qbert --episodes 50 --test-episodes 10 --to /tmp/small
    """
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
    games: tuple[Name, ...] = get_args(Name) if options.game is None else (options.game,)
    for game in games:
        print(_provide(game, settings, folder, options.workers or os.cpu_count() or 1))
    if options.to is not None:
        print(f"Written to {folder}; use it with --data or NPS_DATA.")


def _provide(game: Name, settings: Settings, folder: Path, workers: int) -> str:
    """Make sure that the file of a game is in the folder; a line on how it came there."""
    from nps.files import replace_file
    from nps.worlds.atari import NotFound, file_name, find
    from nps.worlds.atari_play import Emulator

    path = folder / file_name(game)
    if path.exists():
        return f"{path}: {_check(path, game, settings):,} bytes, already there"
    try:
        file, _ = find(game, settings)
    except NotFound:
        file = None
        Emulator(game)  # tells what is amiss before a folder is made
    try:
        folder.mkdir(parents=True, exist_ok=True)  # told before minutes are spent
        data = _play(game, settings, workers) if file is None else file.data
        replace_file(path, data)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    return f"{path}: {len(data):,} bytes, {'played' if file is None else f'from {file.where}'}"


def _check(path: Path, game: Name, settings: Settings) -> int:
    """The size of a file that is what would be made; another is not overwritten."""
    from nps.worlds.atari_file import unpack

    try:
        data = path.read_bytes()
        unpack(data, game, settings)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}; move it away first") from None
    return len(data)


def _play(game: Name, settings: Settings, workers: int) -> bytes:
    from nps.training.progress import ProgressLine
    from nps.worlds.atari_file import pack
    from nps.worlds.atari_play import play_all

    with ProgressLine(game, settings.train + settings.test, 0, "episodes") as line:
        return pack(game, settings, play_all(game, settings, workers, line.update))
