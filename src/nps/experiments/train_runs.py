"""Train a preset into run folders: what the command `nps train` and `nps.train` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from nps.errors import UserError
from nps.experiments.experiment import Experiment
from nps.training import distributed, memory
from nps.training.config import Settings, TrainConfig
from nps.training.loop import steps_per_epoch
from nps.training.loop import train as train_loop
from nps.training.run import Run, identity
from nps.training.task import Task


def train_runs(
    experiment: Experiment[Any, Any],
    preset: str,
    config: TrainConfig,
    runs: Mapping[int, Run],
    device: torch.device,
    settings: Settings,
    report: Callable[[str], None],
    *,
    fresh: bool = False,
) -> Task:
    """Train each seed into its run, or continue it. Returns the task.

    What cannot be trained is refused before anything is written.
    """
    if len(runs) > 1 and distributed.active():
        raise UserError("--seeds: several processes train one seed together; nps sweep runs many")
    distributed.require_even_shares(config.batch_size)
    name, precision = experiment.name, settings.precision
    wanted = {seed: identity(name, preset, seed, config, precision) for seed in runs}
    for seed, run in runs.items():
        run.require_claimable(wanted[seed], fresh=fresh)
    with memory.building(f"nps train {preset}", vars(config)):
        task: Task = experiment.make_task(config, device)
        steps_per_epoch(task, config)
        # Models of all seeds are built alike, unless each starts from a run of its own.
        alike = experiment.presets[preset].starts_from is None
        models = {seed: task.make_model(seed) for seed in (list(runs)[:1] if alike else runs)}
    first = next(iter(runs.values())).folder
    new = not any(run.metrics_path.exists() for run in runs.values())
    if new and (line := experiment.advice(task, next(iter(models.values())), config)) is not None:
        report(line)
    with ExitStack() as held:
        if distributed.is_first():
            for run in runs.values():
                held.enter_context(run.writing())
            for seed, run in runs.items():
                held.enter_context(run.claimed(wanted[seed], fresh=fresh))
        distributed.wait_for_all()
        out = first if len(runs) == 1 else first.parent
        with memory.memory_errors_in_one_line(str(out)):
            train_loop(task, config, runs, device, settings, report, models)
    return task


def runs_in(out: Path, seed: int, seeds: int) -> dict[int, Run]:
    """The run of one seed is `out` itself; those of several are `out/seed-<s>`."""
    if seeds == 1:
        return {seed: Run(out)}
    return {s: Run(out / f"seed-{s}") for s in range(seed, seed + seeds)}
