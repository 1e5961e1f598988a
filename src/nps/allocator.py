"""Keep freed memory for the next step.

glibc returns large blocks to the system when they are freed, and gets them back page by page at the
next step: on a CPU that was up to a third of the time of a training step
(docs/notes/performance.md). The `nps` command keeps them; programs that only import
the layers are not affected.
"""

from __future__ import annotations

import contextlib
import ctypes

# From glibc's malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_BLOCK = 2**25
"""The maximum that glibc allows: larger blocks are always mapped anew."""


def keep_freed_memory() -> bool:
    """Make the C library keep what is freed; returns False if it is not glibc."""
    with contextlib.suppress(OSError, AttributeError):
        adjust = ctypes.CDLL(None).mallopt
        kept = adjust(TRIM_THRESHOLD, 2**30), adjust(MMAP_THRESHOLD, LARGEST_BLOCK)
        return all(kept)
    return False
