"""Atari episodes, played at random in ale-py's emulator by several processes.

The emulator runs as in C-SWM's `PongDeterministic-v4`: an action lasts a fixed number of frames and
is never repeated at random. So an episode is a function of its actions, and these of (seed, set,
index): the result does not depend on the number of processes. Does not import torch, so that
processes start quickly.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nps.errors import RunFailed, UserError, extra
from nps.worlds.atari_games import FRAMES, GAMES, SIDE, STEPS, Name, Settings
from nps.worlds.lanczos import shrink
from nps.worlds.processes import in_processes

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

SETS = ("train", "test")
TOGETHER = 10
"""Episodes that a process plays before it returns them."""


class Played(NamedTuple):
    """E episodes: frames, and the actions between them from the second frame on."""

    frames: UInt8[ndarray, "E 12 3 50 50"]
    actions: UInt8[ndarray, "E 10"]


class Part(NamedTuple):
    """Successive episodes of a set."""

    game: Name
    seed: int
    which: int
    first: int
    length: int


def play_all(
    game: Name,
    settings: Settings,
    workers: int = 0,
    advance: Callable[[int], None] = lambda done: None,
) -> dict[str, Played]:
    """Play both sets; the same episodes for any number of workers.

    Args:
        game: one of `GAMES`.
        settings: how many episodes, and the seed.
        workers: processes that play; 0 plays in this process.
        advance: called with the number of episodes played so far.
    """
    counts = {"train": settings.train, "test": settings.test}
    played = {
        name: Played(
            np.empty((count, FRAMES, 3, SIDE, SIDE), np.uint8), np.empty((count, STEPS), np.uint8)
        )
        for name, count in counts.items()
    }
    parts = [
        Part(game, settings.seed, number, first, min(TOGETHER, counts[name] - first))
        for number, name in enumerate(SETS)
        for first in range(0, counts[name], TOGETHER)
    ]
    done = 0
    with closing(in_processes(play_part, parts, workers, "played Atari")) as results:
        for part, result in zip(parts, results, strict=True):
            rows = slice(part.first, part.first + part.length)
            for target, source in zip(played[SETS[part.which]], result, strict=True):
                target[rows] = source
            done += part.length
            advance(done)
    return played


def play_part(part: Part) -> Played:
    emulator = Emulator(part.game)
    episodes = [
        play(emulator, part.game, (part.seed, part.which, number))
        for number in range(part.first, part.first + part.length)
    ]
    return Played(*map(np.stack, zip(*episodes, strict=True)))


def play(emulator: Emulator, game: Name, key: tuple[int, int, int]) -> Played:
    """The episode of (seed, set, index); it is drawn again if the game ends during it."""
    actions, frames = drawn(emulator, game, key)
    return Played(frames, actions[GAMES[game].warm_up :])


def drawn(
    emulator: Emulator, game: Name, key: tuple[int, int, int]
) -> tuple[UInt8[ndarray, "n"], UInt8[ndarray, "12 3 50 50"]]:
    """All actions of an episode, with those of its warm-up, and its frames."""
    draw = np.random.default_rng(key)
    while True:
        size = GAMES[game].warm_up + STEPS
        actions = draw.integers(len(GAMES[game].actions), size=size, dtype=np.uint8)
        frames = played(emulator, game, actions)
        if frames is not None:
            return actions, frames


def played(
    emulator: Emulator, game: Name, actions: UInt8[ndarray, "n"]
) -> UInt8[ndarray, "12 3 50 50"] | None:
    """The frames of an episode; None if the game ends during it."""
    (top, bottom), warm_up = GAMES[game].rows, GAMES[game].warm_up
    emulator.reset()
    for action in actions[:warm_up]:
        emulator.act(action)
    screens = [emulator.screen()]
    for action in (0, *actions[warm_up:]):
        emulator.act(action)
        screens.append(emulator.screen())
    return None if emulator.over() else shrink(np.stack(screens)[:, top:bottom], SIDE, SIDE)


class Emulator:
    """ALE with a game. Not cached, since ALE complains about open ones at exit."""

    def __init__(self, game: Name) -> None:
        try:
            import ale_py
            from ale_py.roms import get_rom_path
        except ImportError:
            raise UserError(f"Atari games need the extra: {extra('atari')}") from None
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
        self._ale = ale_py.ALEInterface()
        self._ale.setInt("random_seed", 0)
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._ale.loadROM(os.fspath(get_rom_path(game) or game))
        self._actions = self._ale.getMinimalActionSet()
        self._frameskip = GAMES[game].frameskip
        self.reset, self.over = self._ale.reset_game, self._ale.game_over
        self.screen = self._ale.getScreenRGB
        names = tuple(action.name for action in self._actions)
        if names != GAMES[game].actions:
            raise RunFailed(f"{game}: unexpected actions in this ale-py: {', '.join(names)}")

    def act(self, action: int) -> None:
        for _ in range(self._frameskip):
            self._ale.act(self._actions[action])


def version() -> str:
    from importlib.metadata import version

    return version("ale-py")
