"""The least time the machine allows: all FLOPs at its peak, all bytes at its bandwidth.

Both rates are probed in the same run, so that the floor is that of this machine on
this day. The bytes are those that no implementation can avoid: weights, input and output, and
their gradients in training, each moved once. On CUDA a launch has a floor of its own: the time of
an empty kernel inside a graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nps.bench.cases import Work
from nps.bench.timing import best

FLOAT_BYTES = 4
CHAIN = 1000


@dataclass(frozen=True)
class Machine:
    flops_per_second: float
    """A large product in float32, TF32 off."""
    bytes_per_second: float
    """A large copy, read and write counted."""
    launch_seconds: float | None = None
    """An empty kernel in a CUDA graph; None on the CPU."""

    def best(self, other: Machine) -> Machine:
        """The best of two probes of one machine, either of which noise may have slowed."""
        launches = [m.launch_seconds for m in (self, other) if m.launch_seconds is not None]
        return Machine(
            max(self.flops_per_second, other.flops_per_second),
            max(self.bytes_per_second, other.bytes_per_second),
            min(launches, default=None),
        )


def floor_bytes(work: Work, parameters: int, slots: int) -> int:
    """Weights and slots (numbers of floats), each moved once.

    A roll-out could keep its slots on the chip, so its floor is that of one call. A step reads
    weights, input and the gradient of the output; it writes output and the gradients of both.
    """
    moved = 2 * parameters + 4 * slots if work == "step" else parameters + 2 * slots
    return FLOAT_BYTES * moved


def floor_seconds(machine: Machine, flops: int, moved: int) -> float:
    return max(flops / machine.flops_per_second, moved / machine.bytes_per_second)


def probe(device: torch.device) -> Machine:
    cuda = device.type == "cuda"
    size = 8192 if cuda else 1024
    a, b = torch.randn(2, size, size, device=device)
    product = torch.empty(size, size, device=device)
    flops = 2 * size**3 / best(lambda: torch.mm(a, b, out=product), device)
    source = torch.ones(2**28 if cuda else 2**25, device=device)  # far beyond the caches
    target = torch.empty_like(source)
    moved = 2 * FLOAT_BYTES * source.numel() / best(lambda: target.copy_(source), device)
    return Machine(flops, moved, _launch(device) if cuda else None)


def _launch(device: torch.device) -> float:
    x = torch.zeros(1, device=device)
    x.add_(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CHAIN):
            x.add_(1)
    return best(graph.replay, device) / CHAIN
