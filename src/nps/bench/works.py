"""The three workloads, and how they run: eager, compiled, or captured in a CUDA graph.

forward: evaluation, no gradient. step: training mode, noise included, with the gradient of a fixed
random weighting of the output to every parameter and to the slots. rollout: evaluation, ten times,
the output fed back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nps.bench.cases import MODELS, SLOT_DIM, Case

ROLLOUT_STEPS = 10
WARM_UP_CALLS = 3


@dataclass
class Task:
    """A layer and its input, on a device. Calling it changes neither."""

    case: Case
    layer: nn.Module
    slots: Tensor
    cotangent: Tensor
    parameters: list[nn.Parameter]

    def __call__(self) -> Any:
        if self.case.work == "step":
            wanted = [self.slots, *self.parameters]
            return torch.autograd.grad(self.layer(self.slots), wanted, self.cotangent)
        with torch.no_grad():
            slots = self.slots
            for _ in range(ROLLOUT_STEPS if self.case.work == "rollout" else 1):
                slots = self.layer(slots)
            return slots


def make_task(case: Case, device: torch.device) -> Task:
    torch.manual_seed(0)
    training = case.work == "step"
    layer = MODELS[case.model].make(case.rules).to(device).train(training)
    slots, cotangent = torch.randn(2, case.batch, case.slots, SLOT_DIM, device=device)
    parameters = [p for p in layer.parameters() if p.requires_grad]
    return Task(case, layer, slots.requires_grad_(training), cotangent, parameters)


def ready(task: Task) -> Callable[[], Any]:
    """The task in its mode, warmed up and ready to be timed."""
    if task.case.mode.startswith("compiled"):
        _compile(task)
    if task.case.mode.endswith("captured"):
        return _capture(task)
    for _ in range(WARM_UP_CALLS):
        task()
    return task


def _compile(task: Task) -> None:
    """As one graph if possible, else with breaks where control flow depends on the data."""
    layer = task.layer
    task.layer = torch.compile(layer, fullgraph=True, dynamic=False)  # type: ignore[assignment]
    try:
        task()
    except torch._dynamo.exc.Unsupported:
        task.layer = torch.compile(layer, dynamic=False)  # type: ignore[assignment]
        task()


def _capture(task: Task) -> Callable[[], Any]:
    """A CUDA graph of one call. Its output stays in the graph's own memory."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_CALLS):
            task()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        task()

    def replay(task: Task = task) -> None:  # keeps the task alive: the graph reads its memory
        graph.replay()

    return replay
