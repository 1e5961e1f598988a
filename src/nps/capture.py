"""Replay a step as one CUDA graph: the launches of hundreds of small kernels become one.

Explicit capture rather than `torch.compile(mode="reduce-overhead")`: it is as fast at these sizes,
starts in a second instead of a minute, and runs the same kernels as the eager step, so that the two
agree bit for bit (docs/notes/performance.md has the measurements).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

WARM_UP = 3
"""Ordinary calls before the capture: libraries choose algorithms and allocate workspaces."""


class Captured:
    """A captured version of a function that has no arguments and reads nothing on the host.

    The first calls run the function as it is, on a side stream as capture requires; then it is
    captured, and every later call replays it. All calls do the same work.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self._graph is None and self._calls >= WARM_UP:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._function()
        if self._graph is not None:
            self._graph.replay()
            return
        self._calls += 1
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._function()
        torch.cuda.current_stream().wait_stream(side)
