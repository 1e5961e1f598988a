"""The environment that a file was recorded from, so that a model of it can be played against it.

`nps data record` writes it into the file as JSON. Files come from elsewhere too, so only what
cannot run their code is made: environments that Gymnasium or an installed package registers, in
Gymnasium's own wrappers.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nps.worlds.custom.arrays import optional, reading
from nps.worlds.custom.environment import Size, make
from nps.worlds.custom.files import HDF5, stored_elsewhere, suffix

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

KEY = "environment"
MOST = 10_000
"""Bytes of JSON."""
WRAPPERS = "gymnasium.wrappers:"


@dataclass(frozen=True)
class Origin:
    """What `nps.worlds.custom.environment.make` needs, and the size of the images."""

    name: str
    wrappers: tuple[str, ...] = ()
    size: Size | None = None

    def array(self) -> UInt8[ndarray, "n"]:
        """As a file stores it under `KEY`."""
        return np.frombuffer(json.dumps(asdict(self)).encode(), np.uint8)

    @property
    def known(self) -> bool:
        """Whether it can be made without running code that a file chooses."""
        package, colon, _ = self.name.partition(":")
        installed = not colon or package.partition(".")[0] in packages_distributions()
        return installed and all(wrapper.startswith(WRAPPERS) for wrapper in self.wrappers)

    def make(self) -> Any:
        return make(self.name, self.wrappers)


def origin_of(path: Path) -> Origin | None:
    """Where the episodes of a file are from, if it says so and is to be trusted with it."""
    if not path.is_file():
        return None
    with reading(path):
        array = _from_hdf5(path) if suffix(path) in HDF5 else _from_npz(path)
    if array is None or array.dtype != np.uint8 or array.ndim != 1 or array.size > MOST:
        return None
    try:
        found = json.loads(array.tobytes())
        name, wrappers, size = (found[part] for part in ("name", "wrappers", "size"))
        sides = None if size is None else (int(size[0]), int(size[1]))
        origin = Origin(str(name), tuple(map(str, wrappers)), sides)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    return origin if origin.known else None


def _from_npz(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as file:
        found = file[KEY] if KEY in file.files else None
        return found if isinstance(found, np.ndarray) else None


def _from_hdf5(path: Path) -> Any:
    h5py = optional("h5py", path, "HDF5", "hdf5")
    with h5py.File(path, "r") as file:
        if KEY not in file or stored_elsewhere(h5py, file, KEY):
            return None
        data = file[KEY]
        small = isinstance(data, h5py.Dataset) and data.size is not None and data.size <= MOST
        return np.asarray(data[()]) if small else None
