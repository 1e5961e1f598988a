"""`nps bench --steps PRESET`: whole training steps per second, for one seed and for many.

This is the step of the training loop: batch, noise, loss, gradient, guard, clipping, Adam. Stacks
and modes are measured in alternation, as the layers are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from nps.bench.counts import Counter
from nps.bench.timing import alternate
from nps.capture import WARM_UP, Captured
from nps.errors import UserError
from nps.experiments.experiment import Experiment
from nps.inspect.report import Table
from nps.training.batches import Batches
from nps.training.config import TrainConfig
from nps.training.precision import Precision, set_precision
from nps.training.stack import Stack
from nps.training.state import State
from nps.training.step import Step
from nps.training.task import Task

SEEDS = (1, 10, 50)


@dataclass(frozen=True)
class StepRow:
    preset: str
    seeds: int
    mode: str
    """eager, or on CUDA captured."""
    ms: float
    """Time of a step of the whole stack."""
    ms_least: float
    ms_most: float
    launches: int
    """Operations in a step."""
    peak_bytes: int | None
    """Memory that a step of the stack adds on CUDA."""

    @property
    def per_second(self) -> float:
        """Steps per second, of all seeds together."""
        return 1e3 * self.seeds / self.ms


def measure_steps(
    experiment: Experiment,
    preset: str,
    device: torch.device,
    seeds: Sequence[int] = SEEDS,
    rounds: int = 7,
    precision: Precision = "float32",
    at: float = 0.0,
) -> list[StepRow]:
    """Measure stacks of each size, in every mode that the device supports, in the phase that
    training is in when `at` of it is done."""
    config = experiment.presets[preset].config
    task = experiment.make_task(config, device)
    if not task.stackable and max(seeds) > 1:
        raise UserError(f"--seeds: got {max(seeds)}, expected 1: {preset} trains seeds one by one")
    set_precision(precision)
    modes = ("eager", "captured") if device.type == "cuda" else ("eager",)
    keys = [(count, mode) for count in seeds for mode in modes]
    calls: dict[tuple[int, str], Callable[[], None]] = {}
    counted: dict[tuple[int, str], tuple[int, int | None]] = {}
    for key in keys:
        step = _make_step(task, config, key[0], device, precision)
        step.phase = task.phase(at)
        counted[key] = _count(step, device)
        calls[key] = partial(_repeat, step, Captured(step) if key[1] == "captured" else step)
        for _ in range(WARM_UP + 1):
            calls[key]()
    times = alternate(calls, device, rounds)
    return [StepRow(preset, *key, *times[key], *counted[key]) for key in keys]


def _make_step(
    task: Task, config: TrainConfig, count: int, device: torch.device, precision: Precision
) -> Step:
    batches = Batches(task.data, config.batch_size, task.noise_size, range(count), device)
    batches.prepare(0)
    total = batches.steps_per_epoch
    state = State(Stack([task.make_model(seed) for seed in range(count)]), config, total)
    return Step(task, config, state, batches, total, precision)


def _repeat(step: Step, call: Callable[[], None]) -> None:
    step.state.step.zero_()  # the first batch again: it is the one that was prepared
    call()


def _count(step: Step, device: torch.device) -> tuple[int, int | None]:
    step()
    step.state.step.zero_()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    with Counter() as counter:
        step()
    step.state.step.zero_()
    peak = torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else None
    return counter.launches, peak


def table(rows: Sequence[StepRow]) -> Table:
    columns = ["Seeds", "mode", "ms a step", "steps/s, all seeds", "operations", "peak MB"]
    lines = [
        [
            str(row.seeds),
            row.mode,
            f"{row.ms:.3g}",
            f"{row.per_second:,.0f}",
            str(row.launches),
            "–" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:.1f}",
        ]
        for row in rows
    ]
    return Table(columns, lines, f"Training steps of {rows[0].preset}")
