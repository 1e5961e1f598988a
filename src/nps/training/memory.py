"""How many seeds fit in memory at once, and a one-line error if not even one does.

What a seed needs is measured in one forward pass: the tensors that autograd keeps. The rest of a
step (gradients, temporaries, Adam's moments) is estimated by a factor.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nps.errors import RunFailed

if TYPE_CHECKING:
    from nps.training.stack import Stack

TEMPORARIES = 2.5
"""Peak of a step over the bytes kept for its backward pass; 1.4 to 2.1 were measured."""
COPIES = 8
"""Parameters, gradient, two moments, the best so far, and three temporaries."""
USABLE = 0.85
"""Share of the free memory to plan with."""
WORTH_CHECKING = 2**26
"""Bytes from which a tensor is checked before it is made."""
FACTORIES = {
    *(torch.empty, torch.zeros, torch.ones, torch.full, torch.arange),
    *(torch.rand, torch.randn, torch.randint),
}
REFUSED = (
    "can't allocate memory",
    "not enough memory",
    "Storage size calculation overflowed",
    "integer multiplication overflow",
)
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
        return min(int(table["MemAvailable"].split()[0]) * 1024, _left_to_container())
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2  # not Linux


def _left_to_container() -> int:
    """What a limit on this process's control group leaves, if there is one."""
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):  # no such file, or no limit ("max")
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        cached = dict(line.split() for line in (group / "memory.stat").open())
        return max(0, limit - used + int(cached.get("inactive_file", 0)))
    return sys.maxsize


def split(seeds: Sequence[int], needed: float, free: float) -> list[list[int]]:
    """Split the seeds into as few parts of equal size as fit in memory."""
    at_once = max(1, int(USABLE * free / max(needed, 1.0)))
    parts = math.ceil(len(seeds) / at_once)
    return [list(seeds[i::parts]) for i in range(parts)]


@contextlib.contextmanager
def building(doing: str, fields: Mapping[str, object] | None = None) -> Iterator[None]:
    """Inside, data and models are built: tensors too large to train with are refused first.

    Training needs several copies of parameters and data (`COPIES`). Linux grants more memory than
    it has, and kills the process when the memory is used.

    Args:
        doing: the command, for messages.
        fields: the settings; a message names the one to reduce.
    """
    with memory_errors_in_one_line(doing), _Checked(doing, fields or {}):
        yield


class _Checked(TorchFunctionMode):
    """Compares the sum of large tensors with the free memory before each is allocated."""

    def __init__(self, doing: str, fields: Mapping[str, object]) -> None:
        super().__init__()
        self.doing, self.fields, self.made = doing, fields, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in FACTORIES and str(kwargs.get("device")) != "meta":
            self._check(func, args, kwargs)
        return func(*args, **kwargs)

    def _check(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        plain = {key: kwargs[key] for key in kwargs.keys() - {"generator", "out", "pin_memory"}}
        tensor = func(*args, **(plain | {"device": "meta"}))
        if tensor.nbytes < WORTH_CHECKING:
            return
        free = free_bytes(torch.device(kwargs.get("device") or "cpu"))
        made_before, self.made = self.made, self.made + tensor.nbytes
        if COPIES * self.made > free + made_before:
            shape = " x ".join(map(str, tensor.shape))
            raise RunFailed(
                f"{self.doing}: not enough memory: {shape} numbers take {_size(tensor.nbytes)}, "
                f"training needs {COPIES} times as much, {_size(free)} are free"
                f"{self._way_out(max(tensor.shape))}"
            )

    def _way_out(self, size: int) -> str:
        """The settings that have this size, if any: the largest of a tensor is the one to blame."""
        fields = [name for name, value in self.fields.items() if value == size]
        names = [f"--{name.replace('_', '-')}" for name in fields]
        return f"; choose a smaller {' or '.join(names)}" if names else ""


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.3g} {unit}"


@contextlib.contextmanager
def memory_errors_in_one_line(doing: str) -> Iterator[None]:
    """Report a lack of memory in one line."""
    try:
        yield
    except RunFailed:
        raise
    except (RuntimeError, MemoryError) as error:
        message = str(error)
        known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        if not known and not any(words in message for words in REFUSED):
            raise
        found = re.search(r"[Tt]ried to allocate ([\d.]+ \w+)", message)
        size = f" (tried to allocate {found.group(1)})" if found else ""
        raise RunFailed(f"{doing}: not enough memory{size}") from error
