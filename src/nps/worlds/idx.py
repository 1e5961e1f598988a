"""The IDX format of MNIST's files: a magic number, the sizes, then the data.

The magic number is two zero bytes, the element type (8: unsigned bytes) and the number of
dimensions; each size is a big-endian 32-bit number. The files are often gzipped.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import UInt8

MAGIC = b"\x00\x00\x08"
GZIP_MAGIC = b"\x1f\x8b"
MAX_BYTES = 2**26  # far above any file here: an endless stream is cut


def unpack(data: bytes) -> bytes:
    """Decompress, if the data are gzipped."""
    if not data.startswith(GZIP_MAGIC):
        return data
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_BYTES)
    except EOFError:
        raise ValueError(f"truncated, its gzip stream ends after {len(data)} bytes") from None
    except (OSError, zlib.error) as error:
        raise ValueError(f"damaged, not gzip ({error})") from None


def sizes(data: bytes) -> tuple[int, ...]:
    """The sizes in the header; raises `ValueError` unless the file has the right length."""
    if data[:3] != MAGIC[: len(data)] or (len(data) > 3 and data[3] == 0):
        raise ValueError(f"not an IDX file of bytes, it begins with {data[:4].hex(' ')}")
    start = _start(data)
    if len(data) < start:
        raise ValueError(f"truncated, it ends after {len(data)} bytes")
    found = struct.unpack(f">{data[3]}I", data[4:start])
    expected = start + math.prod(found)
    if len(data) < expected:
        raise ValueError(f"truncated, {len(data)} of {expected} bytes")
    if len(data) > expected:
        raise ValueError(f"{len(data)} bytes, expected {expected}")
    return found


def parse(data: bytes) -> UInt8[Tensor, "..."]:
    """The array in the file; raises `ValueError` if the file is damaged."""
    shape = sizes(data)
    return torch.frombuffer(bytearray(data[_start(data) :]), dtype=torch.uint8).view(shape)


def _start(data: bytes) -> int:
    return 4 + 4 * data[3] if len(data) > 3 else 4
