"""`nps bench --steps PRESET`: whole training steps a second, one seed and many.

The very step of the loop: batch, noise, loss, gradient, guard, clipping, Adam. Stacks and modes are
measured in alternation, as the layers are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from nps.bench.counts import Counter
from nps.bench.timing import alternate
from nps.capture import WARM_UP, Captured
from nps.experiments.experiment import Experiment
from nps.inspect.report import Table
from nps.training.config import TrainConfig
from nps.training.feed import Feed
from nps.training.precision import set_precision
from nps.training.stack import Stack
from nps.training.task import Task
from nps.training.update import Update

SEEDS = (1, 10, 50)


@dataclass(frozen=True)
class StepRow:
    preset: str
    seeds: int
    mode: str
    """eager, or on CUDA captured."""
    ms: float
    """A step of the whole stack."""
    ms_least: float
    ms_most: float
    launches: int
    """Operations of a step."""
    peak_bytes: int | None
    """What a step of the stack adds on CUDA."""

    @property
    def per_second(self) -> float:
        """Steps a second, of all seeds together."""
        return 1e3 * self.seeds / self.ms


def measure_steps(
    experiment: Experiment,
    preset: str,
    device: torch.device,
    seeds: Sequence[int] = SEEDS,
    rounds: int = 7,
) -> list[StepRow]:
    """Every stack in every mode that the device has."""
    config = experiment.presets[preset].config
    task = experiment.make_task(config, device)
    set_precision("float32")
    modes = ("eager", "captured") if device.type == "cuda" else ("eager",)
    keys = [(count, mode) for count in seeds for mode in modes]
    calls: dict[tuple[int, str], Callable[[], None]] = {}
    counted: dict[tuple[int, str], tuple[int, int | None]] = {}
    for key in keys:
        update = _update(task, config, key[0], device)
        counted[key] = _count(update, device)
        calls[key] = partial(_one, update, Captured(update) if key[1] == "captured" else update)
        for _ in range(WARM_UP + 1):
            calls[key]()
    times = alternate(calls, device, rounds)
    return [StepRow(preset, *key, *times[key], *counted[key]) for key in keys]


def _update(task: Task, config: TrainConfig, count: int, device: torch.device) -> Update:
    stack = Stack([task.make_model(seed) for seed in range(count)])
    feed = Feed(task.examples, config.batch_size, task.noise_size, range(count), device)
    feed.prepare(0)
    return Update(task, config, stack, feed, feed.steps_an_epoch)


def _one(update: Update, step: Callable[[], None]) -> None:
    update.step.zero_()  # the first batch again: what a feed prepares comes once an epoch
    step()


def _count(update: Update, device: torch.device) -> tuple[int, int | None]:
    update()
    update.step.zero_()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    with Counter() as counter:
        update()
    update.step.zero_()
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
