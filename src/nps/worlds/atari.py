"""Atari games for action-conditioned world models (paper, section 4.3 and appendix "Atari").

Episodes of ten random actions in Pong, Space Invaders, Freeway, Breakout and Q*bert, read from
files that `nps data atari` makes; `nps.worlds.atari_games` describes the games. Every frame is
stored once; an observation, two frames, is assembled when it is needed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, get_args

import torch
from torch import Tensor

from nps.worlds import atari_file
from nps.worlds.atari_games import Name, Settings
from nps.worlds.atari_play import Played
from nps.worlds.fetch import File
from nps.worlds.made_file import MadeFile

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
    return made_file(game, settings).find()


def made_file(game: Name, settings: Settings) -> MadeFile[dict[str, Played]]:
    """Where the file of a game is looked for."""
    if game not in get_args(Name):
        raise ValueError(f"game: got {game!r}, expected one of {', '.join(get_args(Name))}")
    unpack = partial(atari_file.unpack, game=game, settings=settings)
    return MadeFile("Atari", FOLDER, file_name(game), _command(game, settings), unpack)


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
