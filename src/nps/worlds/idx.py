"""The IDX format of MNIST's files: a magic number, the sizes, then the bytes themselves.

The magic number is two zero bytes, the kind of the elements (8: unsigned bytes) and how many
dimensions there are; each size is a big-endian 32-bit number. The files often travel in gzip.
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
MAX_BYTES = 2**26  # far above any file here: a stream without an end is cut


def unpack(data: bytes) -> bytes:
    """Out of gzip, if it is in gzip."""
    if not data.startswith(GZIP_MAGIC):
        return data
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_BYTES)
    except EOFError:
        raise ValueError(f"truncated, its gzip stream ends after {len(data)} bytes") from None
    except (OSError, zlib.error) as error:
        raise ValueError(f"damaged, not gzip ({error})") from None


def sizes(data: bytes) -> tuple[int, ...]:
    """The sizes that the header tells, if the file is as long as they say."""
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
    """The array in the file; a file that is not whole is a `ValueError` that says why."""
    shape = sizes(data)
    return torch.frombuffer(bytearray(data[_start(data) :]), dtype=torch.uint8).view(shape)


def _start(data: bytes) -> int:
    return 4 + 4 * data[3] if len(data) > 3 else 4
