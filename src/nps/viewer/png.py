"""PNG files from arrays, so that the viewer needs no imaging library."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

LEVEL = 4
"""Of zlib: at higher levels noise shrinks hardly more, and takes several times longer."""


def png(pixels: UInt8[ndarray, "H W *C"]) -> bytes:
    """A greyscale (H, W) or RGB (H, W, 3) picture."""
    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    # Filter 2, each row minus the one above it: flat areas and repeated rows become zeros.
    filtered = np.empty((height, rows.shape[1] + 1), np.uint8)
    filtered[:, 0] = 2
    filtered[:1, 1:] = rows[:1]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    colour = 2 if pixels.ndim == 3 else 0
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    data = zlib.compress(filtered.tobytes(), LEVEL)
    parts = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def data_url(image: bytes) -> str:
    """A PNG as an address of its own."""
    return f"data:image/png;base64,{base64.b64encode(image).decode()}"
