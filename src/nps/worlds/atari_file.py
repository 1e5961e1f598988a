"""The file of a game: what was played, and how, in one `.npz` that numpy alone can read.

Each picture is stored once, as its difference to the one before it, which is nearly all zeros;
`meta` is JSON. The archive carries checksums, so that a file is whole or is refused.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from nps.version import __version__
from nps.worlds import atari_play
from nps.worlds.atari_games import FRAMES, GAMES, SIDE, STEPS, Name, Settings, described
from nps.worlds.atari_play import SETS, Played

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

FORMAT = 1

DAMAGED = (
    EOFError, KeyError, NotImplementedError, OSError, RuntimeError, ValueError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What zipfile and numpy raise on files that are not whole."""


def pack(game: Name, settings: Settings, played: dict[str, Played]) -> bytes:
    """The same bytes for the same episodes."""
    meta = {
        "format": FORMAT,
        **described(game, settings),
        "made_with": {"nps": __version__, "ale-py": atari_play.version(), "numpy": np.__version__},
    }
    arrays = {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}
    for name in SETS:
        arrays[f"{name}_frames"] = _differences(played[name].frames)
        arrays[f"{name}_actions"] = played[name].actions
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def unpack(data: bytes, game: Name, settings: Settings) -> dict[str, Played]:
    """The episodes in a file; a `ValueError` says why these are not the ones asked for."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            meta = json.loads(archive["meta"].tobytes())
            _check(meta, game, settings)
            return {name: _part(archive, name, game, getattr(settings, name)) for name in SETS}
    except Other:
        raise
    except DAMAGED as error:
        raise ValueError(f"truncated or damaged ({error})") from None


class Other(ValueError):
    """A whole file, but not the one asked for."""


def _check(meta: dict[str, Any], game: Name, settings: Settings) -> None:
    if meta["format"] != FORMAT:
        raise Other(f"format {meta['format']}, this nps reads {FORMAT}")
    for name, wanted in described(game, settings).items():
        if meta[name] != wanted:
            raise Other(f"{name} {_shown(meta[name])}, expected {_shown(wanted)}")


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _part(archive: Any, name: str, game: Name, count: int) -> Played:
    played = Played(_sums(archive[f"{name}_frames"]), archive[f"{name}_actions"])
    shapes = (count, FRAMES, 3, SIDE, SIDE), (count, STEPS)
    for array, shape in zip(played, shapes, strict=True):
        if array.shape != shape or array.dtype != np.uint8:
            raise ValueError(f"{name}: {array.dtype} of shape {array.shape}, expected {shape}")
    if played.actions.max() >= len(GAMES[game].actions):
        raise ValueError(f"{name}: action {played.actions.max()}")
    return played


def _differences(frames: UInt8[ndarray, "E 12 3 50 50"]) -> UInt8[ndarray, "E 12 3 50 50"]:
    """Each picture less the one before it, over the ends of episodes too; bytes wrap around."""
    row = frames.reshape(-1, 3, SIDE, SIDE)
    return np.diff(row, axis=0, prepend=np.zeros_like(row[:1])).reshape(frames.shape)


def _sums(differences: UInt8[ndarray, "E 12 3 50 50"]) -> UInt8[ndarray, "E 12 3 50 50"]:
    row = differences.reshape(-1, 3, SIDE, SIDE)
    return np.cumsum(row, axis=0, dtype=np.uint8).reshape(differences.shape)
