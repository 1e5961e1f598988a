"""Small grey pictures as text, so that the log of a run can contain what its model draws.

Sixteen grey levels, two pixels per byte, compressed: they look the same, and the pictures of a run
stay below a hundred kilobytes.
"""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

LEVELS = 15
MAX_BYTES = 2**26
"""More than any log contains, so that a damaged one does not fill the memory."""


def pack(pictures: Float[ndarray, "*shape"]) -> dict[str, Any]:
    """Encode grey levels in [0, 1], an even number of them, as JSON."""
    levels = np.rint(np.clip(pictures, 0.0, 1.0) * LEVELS).astype(np.uint8).reshape(-1, 2)
    data = zlib.compress((levels[:, 0] * 16 + levels[:, 1]).tobytes(), 9)
    return {"shape": list(pictures.shape), "grey": base64.b64encode(data).decode()}


def unpack(packed: dict[str, Any]) -> Float[ndarray, "*shape"]:
    """Decode what `pack` returned; exact to half a grey level."""
    data = zlib.decompressobj().decompress(base64.b64decode(packed["grey"]), MAX_BYTES)
    pairs = np.frombuffer(data, np.uint8)
    levels = np.stack([pairs // 16, pairs % 16], -1)
    return (levels.reshape(packed["shape"]) / LEVELS).astype(np.float32)
