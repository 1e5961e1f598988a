"""Permissions that hold for root, too: tests may run as root, who may read and write everything."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Inside, this thread has the permissions that the modes of files give to their owner."""
    if os.geteuid() != 0 or sys.platform != "linux":
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    libc.capget(header, sets)
    kept = sets[0]
    sets[0] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    libc.capset(header, sets)
    try:
        yield
    finally:
        sets[0] = kept
        libc.capset(header, sets)
