"""Pictures that a task draws while it trains, as PNG files."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nps.files import replace_file, told_in_one_line

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png(picture: UInt8[ndarray, "H W"] | UInt8[ndarray, "H W 3"] | bytes) -> bytes:
    """A picture as PNG: grey (H, W) or colour (H, W, 3), or PNG already."""
    if isinstance(picture, bytes):
        if not picture.startswith(SIGNATURE):
            raise ValueError("picture: got bytes that are not a PNG")
        return picture
    pixels = np.asarray(picture)
    if pixels.dtype != np.uint8 or pixels.shape[2:] not in ((), (3,)) or pixels.ndim < 2:
        got = f"{pixels.dtype} {pixels.shape}"
        raise ValueError(f"picture: got {got}, expected uint8 (H, W) or (H, W, 3)")
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    filtered = np.concatenate([np.zeros((height, 1), np.uint8), rows], 1)  # 0: rows as they are
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    body = zlib.compress(filtered.tobytes(), 6)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


def save_picture(path: Path, data: bytes) -> None:
    """Write a PNG so that a reader sees the old or the new one, never a part."""
    with told_in_one_line(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
