"""Where training examples come from: made on the device, resident there, or streamed from the host.

All three look the same to the training step: it holds the indices of the batch, and its source
turns them into examples. The first two compute them inside the step. A streamed source is read
ahead by a worker thread into pinned memory and copied, before the step, into buffers that never
move, which is what a captured step needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.threads import Background

if TYPE_CHECKING:
    from jaxtyping import Int, Shaped

Examples = dict[str, Tensor]
"""Named tensors, the examples along the first dimension."""
AHEAD = 2
"""Batches that a stream reads in advance."""
SLOTS = AHEAD + 1
"""Batches of a stream in host memory: the one being copied, and those read in advance."""


class Source(ABC):
    """A training set of `size` examples, addressed by index."""

    def __init__(self, size: int) -> None:
        self.size = size

    @abstractmethod
    def examples(self, index: Int[Tensor, "B"], buffers: Examples) -> Any:
        """The examples of a batch; called inside the step, for one seed.

        Args:
            index: which examples, on the device.
            buffers: what was streamed for this batch; empty for sources on the device.
        """


class Made(Source):
    """Examples computed from stored states, or whatever else the task keeps on the device.

    Args:
        size: number of examples.
        make: from indices to examples; a pure function that reads nothing on the host. Without it,
            `Batch.data` is None and the task's loss works from `Batch.index`.
    """

    def __init__(self, size: int, make: Callable[[Int[Tensor, "B"]], Any] | None = None) -> None:
        super().__init__(size)
        self._make = make

    def examples(self, index: Int[Tensor, "B"], buffers: Examples) -> Any:
        return None if self._make is None else self._make(index)


class Resident(Source):
    """Examples stored on the device.

    Args:
        tensors: by name, the examples along the first dimension.
    """

    def __init__(self, tensors: Mapping[str, Shaped[Tensor, "size ..."]]) -> None:
        super().__init__(len(next(iter(tensors.values()))))
        self._tensors = tensors

    def examples(self, index: Int[Tensor, "B"], buffers: Examples) -> Examples:
        return {name: tensor[index] for name, tensor in self._tensors.items()}


class Streamed(Source):
    """Examples read from disk or host memory while earlier steps run.

    Args:
        size: number of examples.
        read: from indices to examples on the CPU, the same names, shapes and types for every batch.
            Called in a worker thread; must not touch CUDA.
    """

    def __init__(self, size: int, read: Callable[[Sequence[int]], Examples]) -> None:
        super().__init__(size)
        self.read = read

    def examples(self, index: Int[Tensor, "B"], buffers: Examples) -> Examples:
        return buffers


class Stream:
    """The streamed batches of S seeds.

    The worker thread calls no CUDA function: that would spoil a capture in the main thread.

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
        self._worker = Background()
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
        self._worker.close()

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


def accumulate(parts: Sequence[Examples], dim: int = 0) -> Examples:
    """Join what was measured on several batches; values without a batch dimension are stacked."""
    batched = [
        {name: value if value.dim() > dim else value.unsqueeze(dim) for name, value in part.items()}
        for part in parts
    ]
    return {name: torch.cat([part[name] for part in batched], dim) for name in parts[0]}
