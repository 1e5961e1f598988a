"""What a call needs, counted rather than timed: FLOPs, operations launched, peak memory.

Every operation passes a dispatch mode, backward included. FLOPs follow torch's own formulas
(products only; a multiply and an add are two). A launch is an operation that computes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

# Operations that allocate memory or return a view of it, without a kernel.
BARE_MEMORY = ("empty", "new_empty", "_unsafe_view")


class Counts(NamedTuple):
    flops: int
    launches: int
    peak_bytes: int
    """Peak of the memory allocated in addition to weights and input."""


def count(call: Callable[[], Any], device: torch.device) -> Counts:
    with _spelled_out(), sdpa_kernel(SDPBackend.MATH), Counter() as products:
        call()
    with _spelled_out(), Counter() as operations:
        call()
    return Counts(products.flops, operations.launches, peak_memory(call, device))


def peak_memory(call: Callable[[], Any], device: torch.device) -> int:
    """From the allocator on CUDA; on the CPU, counted operation by operation."""
    if device.type != "cuda":
        counter = Counter()
        with _spelled_out(), counter:
            call()
        return counter.peak_bytes
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


class Counter(TorchDispatchMode):
    """While open, counts the operations and the memory that they leave allocated.

    Memory is counted after every operation, so temporary memory inside one is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.launches = 0
        self.peak_bytes = 0
        self._held: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **kwargs, out_val=out)
        aliases = [r.alias_info for r in func._schema.returns]
        view = any(alias is not None and not alias.is_write for alias in aliases)
        self.launches += not view and not func.overloadpacket.__name__.startswith(BARE_MEMORY)
        if not any(aliases):
            self._hold(out)
        return out

    def _hold(self, out: Any) -> None:
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                reference = StorageWeakRef(storage)
                self._held.setdefault(reference.cdata, (reference, storage.nbytes()))
        held = {key: entry for key, entry in self._held.items() if not entry[0].expired()}
        self._held = held
        self.peak_bytes = max(self.peak_bytes, sum(size for _, size in held.values()))


@contextlib.contextmanager
def _spelled_out() -> Iterator[None]:
    """Without torch's fused attention for evaluation, which hides its products."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
