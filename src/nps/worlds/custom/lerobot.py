"""Episodes of a LeRobot folder (format 2 or 3) whose camera is stored as images (extra `lerobot`).

A row of the tables in `data/` is one frame with the action taken there, as in our own layout.
Cameras stored as video are refused: their frames are lossy, and decoding them needs ffmpeg.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from nps.errors import UserError
from nps.worlds.custom.arrays import Arrays, optional, reading

COLUMNS = ("action", "episode_index", "frame_index")


def recognises(folder: Path) -> bool:
    return _features(folder) is not None


def read(folder: Path) -> Arrays:
    camera = _camera(folder, _features(folder) or {})
    parquet = optional("pyarrow.parquet", folder, "a LeRobot folder", "lerobot")
    pictures = optional("PIL.Image", folder, "a LeRobot folder", "lerobot")
    paths = sorted((folder / "data").glob("*/*.parquet"))
    if not paths:
        raise UserError(f"{folder}: no data/*/*.parquet file in this folder")
    with reading(folder):
        tables = [parquet.read_table(path, columns=[camera, *COLUMNS]) for path in paths]
        number, time = (_column(tables, key) for key in ("episode_index", "frame_index"))
        order = np.lexsort((time, number))
        images = [cell for table in tables for cell in table[camera].to_pylist()]
        obs = np.stack([_decoded(pictures, folder, images[n]) for n in order])
        action = _column(tables, "action")[order]
        ends = np.append(np.diff(number[order]) != 0, True)
        return {"obs": obs, "action": action, "episode_end": ends}


def _features(folder: Path) -> dict[str, Any] | None:
    """The features that meta/info.json describes; None if this is not a LeRobot folder."""
    try:
        info = json.loads((folder / "meta" / "info.json").read_bytes())
        features = info["features"] if "codebase_version" in info else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    kinds = features.values() if isinstance(features, dict) else [None]
    return features if all(isinstance(kind, dict) for kind in kinds) else None


def _camera(folder: Path, features: dict[str, Any]) -> str:
    """The feature with the images: there must be one."""
    images = [key for key, kind in features.items() if kind.get("dtype") == "image"]
    videos = [key for key, kind in features.items() if kind.get("dtype") == "video"]
    if len(images) == 1:
        return images[0]
    if images:
        raise UserError(f"{folder}: got images of {', '.join(images)}, expected one camera")
    if videos:
        raise UserError(
            f"{folder}: {videos[0]} is stored as video, expected images; record it with "
            "use_videos=False, or decode it and save obs, action and episode_end as .npz"
        )
    raise UserError(f"{folder}: no feature of dtype image; it has {', '.join(features)}")


def _column(tables: list[Any], key: str) -> ndarray:
    """A column of all tables: numbers (N,), or lists of numbers (N, A)."""
    return np.concatenate([np.array(table[key].to_pylist()) for table in tables])


def _decoded(pictures: Any, folder: Path, cell: Any) -> ndarray:
    """One image: its file's bytes in the table, or its path below the folder."""
    if cell["bytes"] is not None:
        data = cell["bytes"]
    else:
        path = (folder / cell["path"]).resolve()
        if not path.is_relative_to(folder.resolve()) or not path.is_file():
            raise UserError(f"{folder}: image {cell['path']!r} is not in this folder")
        data = path.read_bytes()
    with pictures.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"), np.uint8)
