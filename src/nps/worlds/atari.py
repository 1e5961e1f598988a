"""Atari games for action-conditioned world models (paper, section 4.3 and appendix "Atari").

Episodes of ten random actions in Pong, Space Invaders, Freeway, Breakout and Q*bert, read from
files that `nps data atari` makes; `nps.worlds.atari_games` describes the games. Every frame is
stored once; an observation, two frames, is assembled when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, get_args

import torch
from torch import Tensor

from nps.errors import UserError
from nps.worlds import atari_file, fetch
from nps.worlds.atari_games import Name, Settings
from nps.worlds.atari_play import Played
from nps.worlds.collection import cache_folder, given_folder
from nps.worlds.fetch import File

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8

FOLDER = "atari"
"""Name of the folder in the cache, and of an optional subfolder in the user's data folder."""


class AtariEpisodes(NamedTuple):
    """E episodes of T = 10 actions, indices into `GAMES[game].actions`."""

    frames: UInt8[Tensor, "E T+2 3 50 50"]
    actions: Int[Tensor, "E T"]

    def to(self, device: torch.device | str) -> AtariEpisodes:
        return AtariEpisodes(*(part.to(device) for part in self))


class Sets(NamedTuple):
    train: AtariEpisodes
    test: AtariEpisodes


class NotFound(UserError):
    """There is no file of the game with these settings."""


def observe(
    frames: UInt8[Tensor, "E T+2 3 50 50"], episode: Int[Tensor, "..."], step: Int[Tensor, "..."]
) -> Float[Tensor, "... 6 50 50"]:
    """The observation before action `step` of an episode: the current frame, then the previous one.

    The observation after the action is that of `step + 1`; an episode has T + 1. Works for any
    shape of indices, on the device of the frames, and under `torch.func.vmap`.
    """
    both = torch.cat([frames[episode, step + 1], frames[episode, step]], dim=-3)
    return both.float() / 255.0


def load(game: Name, settings: Settings | None = None) -> Sets:
    """The episodes of a game, from the file in the folder NPS_DATA or in the user's cache.

    Args:
        game: `pong`, `space_invaders`, `freeway`, `breakout` or `qbert`.
        settings: episodes in each set, and the seed (default: the paper's); a file made with
            other settings is refused.
    """
    _, played = find(game, settings or Settings())
    return Sets(
        *(
            AtariEpisodes(torch.from_numpy(part.frames), torch.from_numpy(part.actions).long())
            for part in (played["train"], played["test"])
        )
    )


def find(game: Name, settings: Settings) -> tuple[File, dict[str, Played]]:
    """The file of a game and its content, or an error that says how to make it."""
    if game not in get_args(Name):
        raise ValueError(f"game: got {game!r}, expected one of {', '.join(get_args(Name))}")
    given, cache = given_folder(), cache_folder() / FOLDER
    folders = [cache] if given is None else [given, given / FOLDER, cache]
    tried = []
    for folder in folders:
        try:
            for file in fetch.from_folder(folder, (), [file_name(game)]):
                return file, atari_file.unpack(file.data, game, settings)
            tried.append(f"not in {folder}")
        except fetch.Unreachable as error:
            tried.append(str(error))
        except ValueError as error:
            tried.append(f"{file.where}: {error}")
    raise NotFound(
        f"Atari: no {file_name(game)} with these settings ({'; '.join(tried)}); make it with "
        f"`{_command(game, settings)}`, or copy it from a machine that can run this"
    )


def file_name(game: Name) -> str:
    return f"{game}.npz"


def _command(game: Name, settings: Settings) -> str:
    flags = {"train": "episodes", "test": "test-episodes", "seed": "seed"}
    given = [
        f" --{flag} {getattr(settings, name)}"
        for name, flag in flags.items()
        if getattr(settings, name) != getattr(Settings(), name)
    ]
    return f"nps data atari --game {game}{''.join(given)}"
