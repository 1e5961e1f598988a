"""Time a call, alone or in alternation with others.

On the CPU by its clock, on CUDA by events around a burst of calls, which is long enough for the
clock's resolution. The median over rounds counts, since a machine's noise is one-sided and comes in
spells.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch

Key = TypeVar("Key")
Call = Callable[[], Any]

BURST_SECONDS = 0.01


class Times(NamedTuple):
    """Milliseconds per call."""

    median: float
    least: float
    most: float


def burst(call: Call, count: int, device: torch.device) -> float:
    """Seconds per call, over `count` calls in a row."""
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / count
    begun = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begun) / count


def alternate(
    calls: Mapping[Key, Call], device: torch.device, rounds: int, seconds: float = BURST_SECONDS
) -> dict[Key, Times]:
    """Times of warmed-up calls, one burst of each in every round."""
    counts = {key: burst_size(call, device, seconds) for key, call in calls.items()}
    seen: dict[Key, list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            seen[key].append(1e3 * burst(call, counts[key], device))
    return {key: Times(statistics.median(x), min(x), max(x)) for key, x in seen.items()}


def burst_size(call: Call, device: torch.device, seconds: float = BURST_SECONDS) -> int:
    """The number of calls that take about this many seconds."""
    return max(1, math.ceil(seconds / max(burst(call, 1, device), 1e-6)))


def best(call: Call, device: torch.device, tries: int = 5) -> float:
    """Seconds per call at its fastest: what the machine can do, not its typical time."""
    burst(call, 1, device)
    count = burst_size(call, device)
    return min(burst(call, count, device) for _ in range(tries))
