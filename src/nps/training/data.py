"""Where training examples come from: made on the device, resident there, or streamed from the host.

All three look the same to the training step: it holds the indices of the batch, and its source
turns them into examples. The first two compute them inside the step; a streamed source copies them
into fixed buffers before the step (`stream.py`), so that a captured step finds them in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Int, Shaped

Examples = dict[str, Tensor]
"""Named tensors, the examples along the first dimension."""


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


def accumulate(parts: Sequence[Examples], dim: int = 0) -> Examples:
    """Join what was measured on several batches; values without a batch dimension are stacked."""
    batched = [
        {name: value if value.dim() > dim else value.unsqueeze(dim) for name, value in part.items()}
        for part in parts
    ]
    return {name: torch.cat([part[name] for part in batched], dim) for name in parts[0]}
