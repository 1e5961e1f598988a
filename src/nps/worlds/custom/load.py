"""Read episodes from a file, a folder of files, a Minari data set or a LeRobot folder."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from nps.errors import UserError
from nps.worlds.custom import lerobot, minari
from nps.worlds.custom.arrays import KEYS
from nps.worlds.custom.check import Channels, Checked, checked, require_keys
from nps.worlds.custom.episodes import RecordedEpisodes
from nps.worlds.custom.files import SUFFIXES, read_file, suffix


def load_episodes(
    path: str | Path, channels: Channels | None = None, frames: int = 1
) -> RecordedEpisodes:
    """Read and check episodes.

    Args:
        path: a `.npz`, `.h5` or `.hdf5` file; a folder of such files, read in order of their names,
            in which a file without `episode_end` is one episode; the folder of a Minari data set,
            or `minari:ID`; or a LeRobot folder.
        channels: position of the channels of `obs` in the file, `first` (N, C, H, W) or `last`
            (N, H, W, C); default: the smallest of the three sizes.
        frames: frames of an observation, the newest first; give the `frames` that a model was
            trained with. At an episode's start its first frame is repeated.

    Example:
        >>> episodes = load_episodes("my.npz", frames=2)  # doctest: +SKIP
        >>> slots = model.encode(episodes.obs[:8])  # doctest: +SKIP
    """
    if channels not in ("first", "last", None):
        raise UserError(f"channels: got {channels!r}, expected first or last")
    if isinstance(frames, bool) or not isinstance(frames, int) or frames < 1:
        raise UserError(f"frames: got {frames!r}, expected an integer from 1")
    obs, action, ends = _read(locate(path), channels)
    episode = torch.cat([ends.new_zeros(1), ends[:-1]]).long().cumsum(0)
    episodes = RecordedEpisodes(obs, action, episode)
    return episodes if frames == 1 else episodes.stacked(frames)


def locate(path: str | Path) -> Path:
    """The path of a file or folder; of `minari:ID`, the folder in which Minari keeps it."""
    name = str(path)
    if name.startswith(minari.PREFIX):
        return minari.folder_of(name.removeprefix(minari.PREFIX))
    return Path(path).expanduser()


def _read(path: Path, channels: Channels | None) -> Checked:
    if not path.is_dir():
        arrays, keys = read_file(path)
        require_keys(path, keys, KEYS)
        return checked(path, arrays, channels)
    for source in (minari, lerobot):
        if source.recognises(path):
            return checked(path, source.read(path), "last")
    return _read_folder(path, channels)


def _read_folder(path: Path, channels: Channels | None) -> Checked:
    paths = sorted(p for p in path.iterdir() if suffix(p) in SUFFIXES and p.name[0] != ".")
    if not paths:
        raise UserError(f"{path}: no {', '.join(SUFFIXES)} file in this folder")
    files = []
    for each in paths:
        arrays, keys = read_file(each)
        require_keys(each, keys, KEYS[:2])
        files.append(checked(each, arrays, channels))
        _require_alike(each, files[-1], paths[0], files[0])
    return Checked(*(torch.cat(parts) for parts in zip(*files, strict=True)))


def _require_alike(path: Path, file: Checked, first_path: Path, first: Checked) -> None:
    for key, one, other in zip(Checked._fields, file, first, strict=True):
        if (one.shape[1:], one.dtype) != (other.shape[1:], other.dtype):
            raise UserError(
                f"{path}: {key}: rows are {_row(one)}, those of {first_path.name} {_row(other)}"
            )


def _row(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape[1:])}"
