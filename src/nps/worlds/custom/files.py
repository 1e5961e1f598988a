"""Episodes in one `.npz` or HDF5 file. Nothing is unpickled, and nothing outside it is read."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from nps.errors import UserError
from nps.worlds.custom.arrays import KEYS, Arrays, optional, reading

HDF5 = (".h5", ".hdf5")
SUFFIXES = (".npz", *HDF5)


def suffix(path: Path) -> str:
    """In lower case: some systems write it in capitals."""
    return path.suffix.lower()


def read_file(path: Path) -> tuple[Arrays, list[str]]:
    """The arrays that we need, and the keys of all."""
    if suffix(path) not in SUFFIXES:
        raise UserError(f"{path}: expected a folder or a file {', '.join(SUFFIXES)}")
    if path.is_dir():
        raise UserError(f"{path}: a folder inside a folder, expected a file")
    if not path.is_file():
        raise UserError(f"{path}: no such file or folder")
    with reading(path):
        return read_hdf5(path) if suffix(path) in HDF5 else read_npz(path)


def read_npz(path: Path) -> tuple[Arrays, list[str]]:
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


def read_hdf5(path: Path) -> tuple[Arrays, list[str]]:
    h5py = optional("h5py", path, "HDF5", "hdf5")
    with h5py.File(path, "r") as file:
        names = [str(name) for name in file]  # bytes if they are not text
        found = [key for key in KEYS if key in names]
        for key in found:
            if elsewhere := stored_elsewhere(h5py, file, key):
                raise UserError(f"{path}: {key}: {elsewhere}, expected an array in the file itself")
            if not isinstance(file[key], h5py.Dataset):
                raise UserError(f"{path}: {key}: a group, expected an array")
        return {key: np.asarray(file[key][()]) for key in found}, names


def stored_elsewhere(h5py: Any, group: Any, key: str) -> str | None:
    """Where the values of a data set are, if not in the file itself; None if they are.

    HDF5 silently returns fill values for a virtual data set whose source is missing. Links are not
    followed: they may lead to other files.
    """
    link = group.get(key, getlink=True)
    if isinstance(link, h5py.ExternalLink):
        return f"a link to {link.filename!r}"
    if isinstance(link, h5py.SoftLink):
        return f"a link to {link.path!r}"
    data = group[key]
    if not isinstance(data, h5py.Dataset):
        return None
    if data.is_virtual:
        return f"a virtual data set of {data.virtual_sources()[0].file_name!r}"
    if data.external:
        return f"stored in {data.external[0][0]!r}"
    return not_written(data)


def not_written(data: Any) -> str | None:
    """How much of a data set is missing; None if all of it is there, as far as HDF5 knows.

    HDF5 returns fill values for chunks that were never written, such as those of a recording that
    was broken off. Only of flags (booleans) chunks may be missing: some write nothing but the true
    ones.
    """
    if not data.size or not data.shape:
        return None
    if not data.id.get_storage_size():
        return "never written"
    if data.chunks is None or data.dtype.kind == "b":
        return None
    chunks = math.prod(-(-side // of) for side, of in zip(data.shape, data.chunks, strict=True))
    written = data.id.get_num_chunks()
    return f"only {written} of {chunks} chunks written" if written < chunks else None
