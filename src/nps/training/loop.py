"""The training loop: one for every experiment, one seed or many, and it never loses work.

`train(2n)` equals `train(n)`, stop, `train(n)`, bit for bit: weights, optimiser, metric log. So
everything a step depends on is a function of the seed and the step (`batches.py`), or is saved
(`state.py`). This file decides which seeds train together; `session.py` trains them.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from nps.errors import RunFailed, UserError
from nps.training import distributed, memory
from nps.training.batches import Batches
from nps.training.checkpoint import Checkpoint
from nps.training.config import Settings, TrainConfig
from nps.training.precision import set_precision
from nps.training.resume import find_starts
from nps.training.run import Run
from nps.training.session import TrainingSession
from nps.training.stack import Stack
from nps.training.state import State
from nps.training.step import Step
from nps.training.task import Task

__all__ = ["Settings", "steps_per_epoch", "train"]


def train(
    task: Task,
    config: TrainConfig,
    runs: Mapping[int, Run],
    device: torch.device,
    settings: Settings | None = None,
    report: Callable[[str], None] = print,
    models: Mapping[int, nn.Module] | None = None,
) -> None:
    """Train each seed into its run, to the end of the config's schedule.

    Each continues from its newest whole checkpoint, if it has one (`resume.py`). Seeds that are at
    the same step train together as a stack if the task allows it, one after the other if not.

    Args:
        task: data, loss and evaluation.
        config: the settings of the training.
        runs: the run folder of each seed. The caller holds their locks and has claimed them.
        device: where to train.
        settings: how to run.
        report: called with each line for the user.
        models: models of some seeds, if the caller has built them already.

    Raises:
        Interrupted: after a signal; the state is saved.
        RunFailed: a loss or gradient is not finite (after the other seeds are done), or the disk
            is full.
    """
    settings = settings or Settings()
    built = dict(models or {})
    total = config.epochs * steps_per_epoch(task, config)
    set_precision(settings.precision)
    found = find_starts(runs, report)
    done = {seed: 0 if saved is None else saved.step for seed, saved in found.items()}
    for seed, run in runs.items():
        known = run.trained_on(task.fingerprint, task.unrecorded_fingerprint)
        if done[seed] and not known:
            raise UserError(f"{run.folder}: its data have changed; --fresh starts over")
        if done[seed] >= total:
            _require_fits(task, config, seed, found[seed], total)
            report(f"{run.folder}: complete, {done[seed]} steps")

    failures: list[str] = []
    waiting = sorted((seed for seed in runs if done[seed] < total), key=lambda seed: done[seed])
    for step, same_step in itertools.groupby(waiting, key=lambda seed: done[seed]):
        seeds = sorted(same_step)
        if step:
            report(f"{_title(runs, seeds)}: resuming after step {step} of {total}")
        if seeds[0] not in built:
            built[seeds[0]] = task.make_model(seeds[0])
        for part in _parts(task, config, seeds, built[seeds[0]], device, settings, report):
            members = [built.pop(s) if s in built else task.make_model(s) for s in part]
            folders = {seed: runs[seed] for seed in part}
            session = TrainingSession(
                task, config, folders, members, device, settings, total, report
            )
            session.restore([found[seed] for seed in part])
            failures += session.train()
    if failures:
        count = f"{len(failures)} of {len(runs)} seeds failed: " if len(runs) > 1 else ""
        raise RunFailed(count + "; ".join(failures))


def steps_per_epoch(task: Task, config: TrainConfig) -> int:
    """Steps of one pass over the training set; refuses a batch that is larger than it."""
    if config.batch_size > task.examples:
        raise UserError(
            f"batch_size: got {config.batch_size}, expected at most the {task.examples} "
            f"training examples; --batch-size {task.examples} fits"
        )
    distributed.require_even_shares(config.batch_size)
    return task.examples // config.batch_size


def _require_fits(
    task: Task, config: TrainConfig, seed: int, saved: Checkpoint | None, total: int
) -> None:
    """Refuse the last checkpoint of another model, as far as it does not say whose it is."""
    if saved is None or saved.run is not None:
        return
    state = State(Stack([task.make_model(seed)]), config, total)
    if (what := state.misfit(0, saved)) is not None:
        raise UserError(f"{saved.path}: does not fit this run: {what}; --fresh starts over")


def _title(runs: Mapping[int, Run], seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return str(runs[seeds[0]].folder)
    return f"{runs[seeds[0]].folder.parent} ({len(seeds)} seeds)"


def _parts(
    task: Task,
    config: TrainConfig,
    seeds: list[int],
    model: nn.Module,
    device: torch.device,
    settings: Settings,
    report: Callable[[str], None],
) -> list[list[int]]:
    """Which seeds train together: all, as many as fit in memory, or each alone."""
    if len(seeds) == 1:
        return [seeds]
    if not task.stackable:
        report(f"{len(seeds)} seeds train one after the other: this task cannot be stacked")
        return [[seed] for seed in seeds]
    if settings.seeds_at_once is not None:
        return memory.split(seeds, 1.0, settings.seeds_at_once / memory.USABLE)
    needed = _bytes_a_seed(task, config, seeds[0], model, device, settings)
    free = memory.free_bytes(device)
    parts = memory.split(seeds, needed, free)
    if len(parts) > 1:
        sizes = " + ".join(str(len(part)) for part in parts)
        report(
            f"{len(seeds)} seeds need about {len(seeds) * needed / 2**30:.1f} GiB, "
            f"{free / 2**30:.1f} GiB are free: training {sizes} seeds one after the other"
        )
    return parts


def _bytes_a_seed(
    task: Task,
    config: TrainConfig,
    seed: int,
    model: nn.Module,
    device: torch.device,
    settings: Settings,
) -> float:
    """Memory of one seed, measured on a copy of its model: a forward pass may change buffers."""
    stack = Stack([copy.deepcopy(model)])
    batches = Batches(task.data, config.batch_size, task.noise_size, [seed], device)
    batches.prepare(0)
    update = Step(task, config, State(stack, config, 1), batches, 1, settings.precision)
    needed = memory.bytes_a_seed(stack, update.forward) + batches.nbytes
    batches.close()
    return needed
