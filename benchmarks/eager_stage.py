"""One training stage on CUDA: eager, compiled and captured, and where the eager time goes.

Prints the milliseconds of forward and backward (medians of alternating rounds), how many kernels
one eager call launches, and the Python functions that take the most time in 200 eager calls.

    python benchmarks/eager_stage.py [--batch 1024] [--slots 5] [--rules 10] [--quick]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from nps.interactions import GNN
from nps.rules import ParallelNPS, SequentialNPS

SLOT_DIM = 64
ROUNDS, CALLS = 15, 40


def step_of(layer: Callable[[torch.Tensor], torch.Tensor], slots: torch.Tensor, module: nn.Module):
    """Forward and backward; gradients are dropped, so that every call makes them anew."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    weights = torch.randn_like(slots)

    def step() -> None:
        layer(slots).backward(weights)
        slots.grad = None
        for p in parameters:
            p.grad = None

    return step


def captured(layer: nn.Module, slots: torch.Tensor) -> Callable[[], None]:
    parameters = [p for p in layer.parameters() if p.requires_grad]
    weights = torch.randn_like(slots)

    def work() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(
            layer(slots), [slots, *parameters], weights, materialize_grads=True, allow_unused=True
        )

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def milliseconds(step: Callable[[], None], calls: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / calls


def launches(step: Callable[[], None]) -> int:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    return sum(
        event.count
        for event in profile.key_averages()
        if event.device_type == torch.autograd.DeviceType.CUDA and "Mem" not in event.key
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--slots", type=int, default=5)
    parser.add_argument("--rules", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    torch.manual_seed(0)
    layers: dict[str, nn.Module] = {
        "sequential": SequentialNPS(SLOT_DIM, options.rules),
        "parallel": ParallelNPS(SLOT_DIM, options.rules),
        "gnn-512": GNN(SLOT_DIM, lean=False),
        "gnn-128": GNN(SLOT_DIM, hidden_dim=128, lean=False),
    }
    steps: dict[tuple[str, str], Callable[[], None]] = {}
    for name, layer in layers.items():
        layer.cuda()
        slots = torch.randn(options.batch, options.slots, SLOT_DIM, device="cuda")
        slots.requires_grad_()
        steps[name, "eager"] = step_of(layer, slots, layer)
        steps[name, "captured"] = captured(layer, slots)
        if not options.quick:
            steps[name, "compiled"] = step_of(torch.compile(layer), slots, layer)
    for step in steps.values():
        milliseconds(step, 10)
    rounds = [
        {key: milliseconds(step, CALLS) for key, step in steps.items()} for _ in range(ROUNDS)
    ]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"batch {options.batch}, {options.slots} slots of {SLOT_DIM}, {options.rules} rules: ms")
    for key in steps:
        print(f"  {' '.join(key):24}{statistics.median(found[key] for found in rounds):8.3f}")
    for name in layers:
        print(f"{name}: {launches(steps[name, 'eager'])} kernels a call, eager")
    for name in ("sequential", "parallel"):
        profile = cProfile.Profile()
        profile.enable()
        milliseconds(steps[name, "eager"], 200)
        profile.disable()
        print(f"\n{name}: 200 eager calls")
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
