"""The file of a game: its episodes and settings in one `.npz` that numpy alone can read.

Each frame is stored once, as its difference to the previous one, which is nearly all zeros; `meta`
is JSON. The archive has checksums, so a damaged file is refused.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from nps.version import __version__
from nps.worlds import atari_play
from nps.worlds.atari_games import FRAMES, GAMES, SIDE, STEPS, Name, Settings, described
from nps.worlds.atari_play import SETS, Played
from nps.worlds.npz import DifferentFile, opened

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

FORMAT = 1


def pack(game: Name, settings: Settings, played: dict[str, Played]) -> bytes:
    """The bytes of the file; equal for equal episodes."""
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
    """The episodes in a file; raises `ValueError` if it is damaged or has other settings."""
    with opened(data) as archive:
        _check(json.loads(_array(archive, "meta").tobytes()), game, settings)
        return {name: _part(archive, name, game, getattr(settings, name)) for name in SETS}


def _check(meta: Any, game: Name, settings: Settings) -> None:
    if not isinstance(meta, dict):
        raise ValueError(f"meta: got {type(meta).__name__}, expected a JSON object")
    if meta["format"] != FORMAT:
        raise DifferentFile(f"format {meta['format']}, this nps reads {FORMAT}")
    for name, wanted in described(game, settings).items():
        if meta[name] != wanted:
            raise DifferentFile(f"{name} {_shown(meta[name])}, expected {_shown(wanted)}")


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _part(archive: Any, name: str, game: Name, count: int) -> Played:
    frames, actions = (_array(archive, f"{name}_{kind}") for kind in Played._fields)
    shapes = (count, FRAMES, 3, SIDE, SIDE), (count, STEPS)
    for array, shape in zip((frames, actions), shapes, strict=True):
        if array.shape != shape or array.dtype != np.uint8:
            raise ValueError(f"{name}: {array.dtype} of shape {array.shape}, expected {shape}")
    if actions.max() >= len(GAMES[game].actions):
        raise ValueError(f"{name}: action {actions.max()}")
    return Played(_sums(frames), actions)


def _array(archive: Any, name: str) -> ndarray:
    array = archive[name]
    if not isinstance(array, np.ndarray):  # for anything else numpy returns its bytes
        raise ValueError(f"{name}: not in numpy's format")
    return array


def _differences(frames: UInt8[ndarray, "E 12 3 50 50"]) -> UInt8[ndarray, "E 12 3 50 50"]:
    """Each frame minus the previous one, across episodes too; bytes wrap around."""
    row = frames.reshape(-1, 3, SIDE, SIDE)
    return np.diff(row, axis=0, prepend=np.zeros_like(row[:1])).reshape(frames.shape)


def _sums(differences: UInt8[ndarray, "E 12 3 50 50"]) -> UInt8[ndarray, "E 12 3 50 50"]:
    row = differences.reshape(-1, 3, SIDE, SIDE)
    return np.cumsum(row, axis=0, dtype=np.uint8).reshape(differences.shape)
