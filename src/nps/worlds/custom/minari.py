"""Episodes of a Minari data set, the Gymnasium ecosystem's offline data (extra `minari`).

Observations must be images, or a dictionary with one image. By default Minari compresses images
as JPEG (`jpeg_encoding=False` when a data set is created keeps them exact).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nps.errors import UserError
from nps.worlds.custom.arrays import Arrays, joined, optional, reading
from nps.worlds.custom.files import HDF5, stored_elsewhere, suffix
from nps.worlds.custom.spaces import action_rows, is_image, require_actions, with_channels

PREFIX = "minari:"


def folder_of(name: str) -> Path:
    """The folder of a data set that was downloaded or created on this machine."""
    root = os.environ.get("MINARI_DATASETS_PATH")
    folder = (Path(root) if root else Path.home() / ".minari" / "datasets") / name
    if not name or not recognises(folder):
        raise UserError(
            f"{PREFIX}{name}: no such data set in {folder.parent if name else folder}; "
            f"`minari list local` shows yours, `minari download {name or 'ID'}` gets one"
        )
    return folder


def recognises(folder: Path) -> bool:
    try:
        found = json.loads((folder / "data" / "metadata.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "minari_version" in found


def read(folder: Path) -> Arrays:
    minari = optional("minari", folder, "a Minari data set", "minari")
    with reading(folder):
        for file in (folder / "data").iterdir():
            if suffix(file) in HDF5:
                _require_own(file)
        data = minari.MinariDataset(folder / "data")
        pick = _image_of(folder, data.observation_space)
        try:
            require_actions(data.action_space)
        except ValueError as error:
            raise UserError(f"{folder}: {error}") from None
        episodes = [
            (
                with_channels(np.asarray(pick(each.observations)), 4),
                action_rows(data.action_space, each.actions),
            )
            for each in data.iterate_episodes()
            if len(each.actions)
        ]
        if not episodes:
            raise UserError(f"{folder}: no episode with an action")
        return joined(episodes)


def _image_of(folder: Path, space: Any) -> Callable[[Any], Any]:
    """How to get the images of an episode's observations."""
    if is_image(space):
        return lambda observations: observations
    parts = getattr(space, "spaces", {})
    named = parts if isinstance(parts, Mapping) else {}
    images = [key for key, part in named.items() if is_image(part)]
    if len(images) == 1:
        return lambda observations: observations[images[0]]
    found = f"{len(images) or 'no'} images in {' '.join(str(space).split())}"
    raise UserError(
        f"{folder}: observations: got {found}, expected one (a Box of uint8, H x W x C or H x W); "
        "collect rendered images with gymnasium's AddRenderObservation, or use `nps data record`"
    )


def _require_own(path: Path) -> None:
    """Refuse an HDF5 file with arrays that are not in it."""
    h5py = optional("h5py", path, "HDF5", "hdf5")
    with h5py.File(path, "r") as file:
        groups = [("", file)]
        while groups:
            name, group = groups.pop()
            for key in group:
                if elsewhere := stored_elsewhere(h5py, group, key):
                    raise UserError(
                        f"{path}: {name}{key}: {elsewhere}, expected an array in the file itself"
                    )
                if isinstance(group[key], h5py.Group):
                    groups.append((f"{name}{key}/", group[key]))
