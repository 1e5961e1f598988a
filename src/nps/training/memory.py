"""How many seeds fit in memory at once, and a one-line error if not even one does.

What a seed needs is measured in one forward pass: the tensors that autograd keeps. The rest of a
step (gradients, temporaries, Adam's moments) is estimated by a factor.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.errors import RunFailed

if TYPE_CHECKING:
    from nps.training.stack import Stack

TEMPORARIES = 2.5
"""Peak of a step over the bytes kept for its backward pass; 1.4 to 2.1 were measured."""
COPIES = 8
"""Parameters, gradient, two moments, the best so far, and three temporaries."""
USABLE = 0.85
"""Share of the free memory to plan with."""
REFUSED = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed")
"""How torch words a lack of memory in a plain `RuntimeError`, on the CPU."""


def bytes_a_seed(stack: Stack, forward: Callable[[], object]) -> float:
    """Memory that one seed needs while training, from a forward pass of a stack of one."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        forward()
    return TEMPORARIES * sum(kept.values()) + COPIES * stack.vector.nbytes


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept  # what torch caches can be used again
    with contextlib.suppress(OSError, KeyError), open("/proc/meminfo") as lines:
        table = dict(line.split(":", 1) for line in lines)
        return int(table["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2  # not Linux


def split(seeds: Sequence[int], needed: float, free: float) -> list[list[int]]:
    """Split the seeds into as few parts of equal size as fit in memory."""
    at_once = max(1, int(USABLE * free / max(needed, 1.0)))
    parts = math.ceil(len(seeds) / at_once)
    return [list(seeds[i::parts]) for i in range(parts)]


@contextlib.contextmanager
def memory_errors_in_one_line(doing: str) -> Iterator[None]:
    """Report a lack of memory in one line."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        message = str(error)
        known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        if not known and not any(words in message for words in REFUSED):
            raise
        found = re.search(r"[Tt]ried to allocate ([\d.]+ \w+)", message)
        size = f" (tried to allocate {found.group(1)})" if found else ""
        raise RunFailed(f"{doing}: not enough memory{size}") from error
