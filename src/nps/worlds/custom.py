"""The user's own episodes, from one `.npz` or HDF5 file or from a folder of them.

Row n of every array is one time step: the image (`obs`), the action taken there (`action`), and
whether the episode ends with it (`episode_end`). The action of an episode's last frame is never
used. An invalid file is refused in one line that names the file and the key.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from nps.errors import UserError, extra

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, UInt8

KEYS = ("obs", "action", "episode_end")
HDF5 = (".h5", ".hdf5")
SUFFIXES = (".npz", *HDF5)
MOST_ACTIONS = 10_000
"""Limit for discrete actions, which become one-hot vectors."""
FARTHEST_ACTION = 1e6
"""Limit for continuous actions, which a model reads as they are."""
LISTED_KEYS = 8
"""How many of a file's keys an error message lists."""

Channels = Literal["first", "last"]


class RecordedEpisodes(NamedTuple):
    """All frames, episode by episode."""

    obs: UInt8[Tensor, "N C H W"] | Float[Tensor, "N C H W"]
    action: Int[Tensor, "N"] | Float[Tensor, "N A"]
    """Discrete or continuous; `action[n]` leads from `obs[n]` to `obs[n + 1]`."""
    episode: Int[Tensor, "N"]
    """Index of the episode of each frame, from 0."""

    @property
    def discrete(self) -> bool:
        return self.action.dim() == 1

    @property
    def action_size(self) -> int:
        """Number of discrete actions (the largest plus one), or size of continuous ones.

        The last action of an episode does not count, since no frame follows it.
        """
        if not self.discrete:
            return self.action.shape[1]
        return int(self.action[:-1][self.episode[1:] == self.episode[:-1]].max()) + 1

    def windows(self, steps: int = 1) -> Int[Tensor, "P steps+1"]:
        """Indices of the frames n, ..., n + steps, for every n that has these in its episode.

        With one step, these are the transitions.
        """
        longest = int(torch.bincount(self.episode).max()) - 1
        if not 1 <= steps <= longest:
            raise UserError(
                f"steps: got {steps}, expected 1 to {longest}, the length of the longest episode"
            )
        inside = self.episode[:-steps] == self.episode[steps:]
        return torch.nonzero(inside) + torch.arange(steps + 1, device=inside.device)

    def fingerprint(self) -> str:
        """A hash that is equal for equal episodes, however they are stored."""
        digest = hashlib.sha256()
        for part in self:
            digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
            digest.update(part.cpu().contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def to(self, device: torch.device | str) -> RecordedEpisodes:
        return RecordedEpisodes(*(part.to(device) for part in self))


def load_episodes(path: str | Path, channels: Channels | None = None) -> RecordedEpisodes:
    """Read and check episodes.

    Args:
        path: a `.npz`, `.h5` or `.hdf5` file; or a folder of such files, read in order of their
            names, in which a file without `episode_end` is one episode.
        channels: position of the channels of `obs`, `first` (N, C, H, W) or `last` (N, H, W, C);
            default: the smallest of the three sizes.
    """
    if channels not in ("first", "last", None):
        raise UserError(f"channels: got {channels!r}, expected first or last")
    path = Path(path).expanduser()
    if not path.is_dir():
        obs, action, ends = _checked(path, channels, single=True)
    else:
        paths = sorted(p for p in path.iterdir() if _suffix(p) in SUFFIXES and p.name[0] != ".")
        if not paths:
            raise UserError(f"{path}: no {', '.join(SUFFIXES)} file in this folder")
        files = [_checked(each, channels, single=False) for each in paths]
        for each, file in zip(paths, files, strict=True):
            _require_alike(each, file, paths[0], files[0])
        obs, action, ends = (torch.cat(parts) for parts in zip(*files, strict=True))
    episode = torch.cat([ends.new_zeros(1), ends[:-1]]).long().cumsum(0)
    return RecordedEpisodes(obs, action, episode)


class _File(NamedTuple):
    obs: Tensor
    action: Tensor
    ends: Bool[Tensor, "N"]


def _checked(path: Path, channels: Channels | None, *, single: bool) -> _File:
    """Read and check one file; a `single` one must have `episode_end`."""
    arrays, keys = _read(path)
    needed = KEYS if single else KEYS[:2]
    for key in needed:
        if key not in arrays:
            raise UserError(f"{path}: no {key}; the file has {_listed(keys)}")
    try:
        obs = _obs(arrays["obs"], channels)
        action = _action(arrays["action"], len(obs))
        ends = _ends(arrays.get("episode_end"), len(obs))
        _require_moderate(action, ends)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    return _File(obs, action, ends)


def _listed(names: list[str]) -> str:
    """The first few names on one line, whatever characters they have."""
    few = [name if name.isprintable() else repr(name) for name in names[:LISTED_KEYS]]
    more = [f"{len(names) - LISTED_KEYS} more"] if len(names) > LISTED_KEYS else []
    return ", ".join(few + more) or "nothing"


def _obs(array: ndarray, channels: Channels | None) -> Tensor:
    if array.ndim != 4 or 0 in array.shape:
        raise ValueError(
            f"obs: got shape {array.shape}, expected (N, H, W, C) or (N, C, H, W), not empty"
        )
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise ValueError(f"obs: got {array.dtype}, expected uint8 or floating point")
    if (channels or _channels(array.shape)) == "last":
        array = array.transpose(0, 3, 1, 2)
    return _tensor("obs", array)


def _channels(shape: tuple[int, ...]) -> Channels:
    """Infer the position of the channels: they are fewer than rows and columns."""
    _, first, middle, last = shape
    if first < min(middle, last):
        return "first"
    if last < min(first, middle):
        return "last"
    raise ValueError(
        f"obs: the position of the channels is ambiguous in shape {shape}; give channels='first' "
        "or 'last' (--channels first or last)"
    )


def _action(array: ndarray, count: int) -> Tensor:
    discrete = array.ndim == 1 and array.dtype.kind in "iu"
    continuous = array.ndim == 2 and array.dtype.kind == "f" and array.shape[1] > 0
    if not discrete and not continuous:
        raise ValueError(
            f"action: got {array.dtype} of shape {array.shape}, expected integers (N,) for "
            f"discrete or floating point (N, A) for continuous actions"
        )
    _require_length("action", array, count)
    if discrete and array.min() < 0:
        raise ValueError(f"action: got {array.min()}, expected integers from 0")
    if discrete and array.max() >= MOST_ACTIONS:
        raise ValueError(f"action: got {array.max()}, expected numbers below {MOST_ACTIONS:,}")
    return _tensor("action", array)


def _ends(array: ndarray | None, count: int) -> Bool[Tensor, "N"]:
    """Where episodes end; each must have at least two frames, which make one transition."""
    if array is None:
        array = np.arange(count) == count - 1
    if array.ndim != 1 or array.dtype.kind not in "biu":
        raise ValueError(
            f"episode_end: got {array.dtype} of shape {array.shape}, expected booleans (N,)"
        )
    _require_length("episode_end", array, count)
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"episode_end: got {array.max()}, expected True or False (1 or 0)")
    if not array[-1]:
        raise ValueError(f"episode_end: got False for the last frame, {count - 1}, expected True")
    ends = np.flatnonzero(array)
    short = np.diff(ends, prepend=-1) < 2
    if short.any():
        raise ValueError(
            f"episode_end: the episode that ends with frame {ends[short][0]} has one frame, "
            "expected at least two"
        )
    return torch.from_numpy(array.astype(bool))


def _require_moderate(action: Tensor, ends: Bool[Tensor, "N"]) -> None:
    """Refuse continuous actions so large that the loss would overflow."""
    large = (action.abs() > FARTHEST_ACTION).nonzero()
    if action.dim() == 1 or not len(large):
        return
    row, column = large[0].tolist()
    raise ValueError(
        f"action: got {action[row, column]:g} in row {row}, of episode {int(ends[:row].sum())}, "
        f"expected numbers from {-FARTHEST_ACTION:g} to {FARTHEST_ACTION:g}"
    )


def _require_length(key: str, array: ndarray, count: int) -> None:
    if len(array) != count:
        raise ValueError(
            f"{key}: got {len(array)} rows for {count} frames of obs, expected one per frame "
            "(also for the last of an episode)"
        )


def _tensor(key: str, array: ndarray) -> Tensor:
    """Images as bytes, integers as int64, floats as float32, which must be finite."""
    if array.dtype.kind != "f":
        kind = np.uint8 if key == "obs" else np.int64
        return torch.from_numpy(array.astype(kind, copy=False))
    with np.errstate(over="ignore"):  # refused below
        array = array.astype(np.float32, copy=False)
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(f"{key}: got {array[where]} in row {where[0]}, expected finite numbers")
    return torch.from_numpy(array)


def _require_alike(path: Path, file: _File, first_path: Path, first: _File) -> None:
    for key, one, other in zip(_File._fields, file, first, strict=True):
        if (one.shape[1:], one.dtype) != (other.shape[1:], other.dtype):
            raise UserError(
                f"{path}: {key}: rows are {_row(one)}, those of {first_path.name} {_row(other)}"
            )


def _row(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape[1:])}"


def _read(path: Path) -> tuple[dict[str, ndarray], list[str]]:
    """The arrays that we need, and the keys of all."""
    if _suffix(path) not in SUFFIXES:
        raise UserError(f"{path}: expected a folder or a file {', '.join(SUFFIXES)}")
    if path.is_dir():
        raise UserError(f"{path}: a folder inside a folder, expected a file")
    if not path.is_file():
        raise UserError(f"{path}: no such file or folder")
    try:
        return _read_hdf5(path) if _suffix(path) in HDF5 else _read_npz(path)
    except UserError:
        raise
    except Exception as error:  # readers raise many kinds of errors for damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path}: cannot be read ({reason})") from None


def _suffix(path: Path) -> str:
    """In lower case: some systems write it in capitals."""
    return path.suffix.lower()


def _read_npz(path: Path) -> tuple[dict[str, ndarray], list[str]]:
    with path.open("rb") as data:
        if not zipfile.is_zipfile(data):  # numpy would take it for a pickle
            raise UserError(f"{path}: truncated, or not a .npz file")
        data.seek(0)
        with np.load(data, allow_pickle=False) as file:
            arrays = {key: file[key] for key in KEYS if key in file.files}
            for key, array in arrays.items():
                if not isinstance(array, ndarray):  # for anything else numpy returns its bytes
                    raise UserError(f"{path}: {key}: not in numpy's format, expected an array")
            return arrays, file.files


def _read_hdf5(path: Path) -> tuple[dict[str, ndarray], list[str]]:
    try:
        import h5py
    except ImportError:
        raise UserError(f"{path}: HDF5 needs the extra: {extra('hdf5')}") from None
    with h5py.File(path, "r") as file:
        arrays: dict[str, Any] = {key: file[key] for key in KEYS if key in file}
        for key, array in arrays.items():
            if not isinstance(array, h5py.Dataset):
                raise UserError(f"{path}: {key}: a group, expected an array")
        names = [str(name) for name in file]  # bytes if they are not text
        return {key: np.asarray(array[()]) for key, array in arrays.items()}, names
