"""Examples from the host, read ahead by a worker thread.

While the device runs a step, the worker reads the batches of the next two into pinned memory.
Before a step its batch is copied into buffers that never move, which is what a captured step needs.
The worker calls no CUDA function: from another thread that would spoil a capture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.training.data import Examples

if TYPE_CHECKING:
    from jaxtyping import Int

AHEAD = 2
"""Batches read in advance."""
SLOTS = AHEAD + 1
"""Batches in host memory: the one being copied, and those read in advance."""


class Stream:
    """The streamed batches of S seeds.

    Args:
        read: from the indices of examples to the examples, on the CPU.
        indices: from a step to the examples of its batch for every seed.
        device: where the steps run.
    """

    def __init__(
        self,
        read: Callable[[Sequence[int]], Examples],
        indices: Callable[[int], Int[Tensor, "S B"]],
        device: torch.device,
    ) -> None:
        self._read, self._indices, self._device = read, indices, device
        self._worker = ThreadPoolExecutor(1)
        self._pending: dict[int, Future[Examples]] = {}
        self._pinned: list[Examples] = []
        self._copied: list[torch.cuda.Event] = []
        self.buffers: Examples = {}
        """The batch of the current step, (S, B, ...) each."""

    def fetch(self, step: int) -> None:
        """Fill the buffers with the batch of a step, and start to read the next ones."""
        if step not in self._pending:  # the first step, or not the one expected
            self._drain()
            batch = self._load(step)
            if not self.buffers:
                self._allocate(batch)
        else:
            batch = self._pending.pop(step).result()
        for name, buffer in self.buffers.items():
            buffer.copy_(batch[name], non_blocking=True)
        if self._copied:
            self._copied[step % SLOTS].record()
        for later in range(step + 1, step + SLOTS):
            if later not in self._pending:
                self._pending[later] = self._start(later)

    def close(self) -> None:
        """Stop reading ahead."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _start(self, step: int) -> Future[Examples]:
        if not self._pinned:
            return self._worker.submit(self._load, step)
        slot = step % SLOTS
        self._copied[slot].synchronize()  # the pinned memory may still be read by the last copy
        return self._worker.submit(self._load_pinned, step, self._pinned[slot])

    def _load(self, step: int) -> Examples:
        indices = self._indices(step)
        flat = self._read(indices.flatten().tolist())
        return {name: tensor.unflatten(0, indices.shape) for name, tensor in flat.items()}

    def _load_pinned(self, step: int, pinned: Examples) -> Examples:
        for name, tensor in self._load(step).items():
            pinned[name].copy_(tensor)
        return pinned

    def _allocate(self, batch: Examples) -> None:
        """Buffers for batches like this one; in the main thread, since pinning calls CUDA."""
        self.buffers = {
            name: torch.empty_like(tensor, device=self._device) for name, tensor in batch.items()
        }
        if self._device.type == "cuda":
            self._pinned = [
                {name: torch.empty_like(t).pin_memory() for name, t in batch.items()}
                for _ in range(SLOTS)
            ]
            self._copied = [torch.cuda.Event() for _ in range(SLOTS)]

    def _drain(self) -> None:
        """Wait for reads that nobody needs any more: their memory is used again."""
        for pending in self._pending.values():
            pending.result()
        self._pending.clear()
