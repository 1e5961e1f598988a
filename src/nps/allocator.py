"""Keep freed memory for the next step.

glibc gives large blocks back to the system when they are freed, and asks for them again, page by
page, at the next step: on a CPU that was up to a third of the time of a training step
(docs/performance.md). The `nps` command keeps them; programs that import the layers are left alone.
"""

from __future__ import annotations

import contextlib
import ctypes

# From glibc's malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_BLOCK = 2**25
"""The most that glibc allows: larger blocks are always mapped anew."""


def keep_freed_memory() -> bool:
    """Tell the C library to keep what is freed; False where it is not glibc."""
    with contextlib.suppress(OSError, AttributeError):
        adjust = ctypes.CDLL(None).mallopt
        kept = adjust(TRIM_THRESHOLD, 2**30), adjust(MMAP_THRESHOLD, LARGEST_BLOCK)
        return all(kept)
    return False
