"""Reading an `.npz` file that may be damaged, or be another one than was expected."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class DifferentFile(ValueError):
    """The file is intact, but of another world, format or settings."""


@contextmanager
def opened(data: bytes) -> Iterator[Any]:
    """The arrays of a file. Whatever goes wrong with them inside is a `ValueError` of one line."""
    if not zipfile.is_zipfile(io.BytesIO(data)):  # numpy would take it for a pickle
        raise ValueError("truncated, or not a .npz file")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            yield archive
    except DifferentFile:
        raise
    except Exception as error:  # readers raise many kinds of errors for damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"truncated or damaged ({reason})") from None
