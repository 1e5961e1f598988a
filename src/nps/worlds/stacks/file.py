"""The file of falling towers: all sets and their settings in one `.npz` that numpy alone can read.

It holds states, 5 MB of them; pictures are drawn from these. `meta` is JSON. The archive has
checksums, so a damaged file is refused.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np

from nps.version import __version__
from nps.worlds.npz import DifferentFile, opened
from nps.worlds.stacks.making import HEIGHTS, Falls, Settings
from nps.worlds.stacks.physics import FRAMES

FORMAT = 1
DTYPES = ("uint8", "float32", "uint8", "uint8", "float32", "float32", "bool", "bool")
"""Of the fields of `Falls`."""


def pack(settings: Settings, made: dict[str, Falls]) -> bytes:
    """The bytes of the file; equal for equal episodes."""
    made_with = {"nps": __version__, "mujoco": version("mujoco"), "numpy": np.__version__}
    meta = {"format": FORMAT, **asdict(settings), "made_with": made_with}
    arrays = {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}
    for name, falls in made.items():
        arrays |= {f"{name}_{field}": x for field, x in falls._asdict().items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def unpack(data: bytes, settings: Settings) -> dict[str, Falls]:
    """The episodes in a file; raises `ValueError` if it is damaged or has other settings."""
    with opened(data) as archive:
        meta = json.loads(archive["meta"].tobytes())
        for name, value in {"format": FORMAT, **asdict(settings)}.items():
            if meta[name] != value:
                raise DifferentFile(f"{name} {meta[name]}, expected {value}")
        return {name: read_set(archive, name, getattr(settings, name)) for name in HEIGHTS}


def read_set(archive: Any, name: str, count: int) -> Falls:
    m = HEIGHTS[name]
    frames = (count, FRAMES, m)
    shapes = (
        *((count, m), (count, m, 3), (count, m), (count,)),
        *((*frames, 3), (*frames, 4), (*frames, m), frames),
    )
    arrays = [archive[f"{name}_{field}"] for field in Falls._fields]
    for field, array, shape, dtype in zip(Falls._fields, arrays, shapes, DTYPES, strict=True):
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(f"{name}_{field}: got {array.dtype} {array.shape}, expected {shape}")
    return Falls(*arrays)
