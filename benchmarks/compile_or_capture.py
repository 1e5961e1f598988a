"""Which makes a training step cheapest: explicit capture, torch.compile, or both?

    python benchmarks/compile_or_capture.py runs/compile-or-capture.jsonl

The loop's step on coordinate arithmetic, one seed and fifty: as it is (eager), captured as a CUDA
graph (`nps.capture`), with the losses compiled by Inductor, compiled and captured, and compiled
with mode="reduce-overhead", torch's own graphs. One JSON line each: seconds until the step is
ready, milliseconds a step. docs/notes/performance.md says what was chosen.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from nps.capture import Captured
from nps.experiments.arithmetic import PRESETS, ArithmeticTask
from nps.training import provenance
from nps.training.batches import Batches
from nps.training.stack import Stack
from nps.training.state import State
from nps.training.step import Step

MODES = ("eager", "captured", "compiled", "compiled, captured", "reduce-overhead")
STEPS = 1000


def step_of(mode: str, seeds: int, device: torch.device) -> tuple[Step, object]:
    task = ArithmeticTask(PRESETS["arithmetic"].config, device)
    stack = Stack([task.make_model(seed) for seed in range(seeds)])
    batches = Batches(task.data, 64, task.noise_size, range(seeds), device)
    total = 10**6
    step = Step(task, task.config, State(stack, task.config, total), batches, total)
    batches.prepare(0)
    if mode.startswith("compiled"):
        step.forward = torch.compile(step.forward)
    if mode == "reduce-overhead":
        step.forward = torch.compile(step.forward, mode="reduce-overhead")
    return step, Captured(step) if "captured" in mode else step


def measure(mode: str, seeds: int, device: torch.device) -> dict[str, object]:
    torch._dynamo.reset()
    step, call = step_of(mode, seeds, device)
    began = time.perf_counter()
    for _ in range(10):
        call()
    torch.cuda.synchronize()
    ready = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(STEPS):
        step.state.step.fill_(0)  # the same batch: nothing to prepare
        call()
    torch.cuda.synchronize()
    milliseconds = (time.perf_counter() - began) * 1e3 / STEPS
    return {"mode": mode, "seeds": seeds, "ready_s": round(ready, 2), "ms": round(milliseconds, 4)}


def main() -> None:
    device = torch.device("cuda")
    rows = [provenance.describe(device)]
    for seeds in (1, 50):
        for mode in MODES:
            try:
                rows.append(measure(mode, seeds, device))
            except Exception as error:  # a mode that torch cannot do is a result as well
                first = str(error).strip().splitlines()[0] if str(error).strip() else ""
                rows.append(
                    {"mode": mode, "seeds": seeds, "error": f"{type(error).__name__}: {first}"}
                )
            print(rows[-1], flush=True)
    Path(sys.argv[1]).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main()
