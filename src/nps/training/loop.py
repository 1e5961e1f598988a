"""The training loop: one for every experiment, one seed or many, and it never loses work.

`train(2n)` equals `train(n)`, stop, `train(n)`, bit for bit: weights, optimiser, random numbers and
metric log. So everything a step depends on is a function of the seed and the step (`feed.py`), or
is saved (`saving.py`): validation leaves every generator as it was, and sums over the running epoch
are part of the checkpoint. Which seeds are trained together is decided here; `sitting.py` does it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import torch

from nps.errors import RunFailed, UserError
from nps.training import checkpoint, distributed, memory, rng
from nps.training.config import TrainConfig
from nps.training.feed import Feed
from nps.training.precision import set_precision
from nps.training.run import Run
from nps.training.sitting import Settings, Sitting
from nps.training.stack import Stack
from nps.training.task import Task
from nps.training.update import Update


def train(
    task: Task,
    config: TrainConfig,
    runs: Mapping[int, Run],
    device: torch.device,
    settings: Settings | None = None,
    report: Callable[[str], None] = print,
) -> None:
    """Train each seed into its run, to the end of the config's schedule, from the newest whole
    checkpoint if any. Seeds that are equally far are trained together.

    The caller holds the runs' locks and has claimed their config. Raises `Interrupted` after a
    signal, `RunFailed` when a loss or gradient is not finite (after the other seeds are done) or
    the disk is full.
    """
    settings = settings or Settings()
    total = config.epochs * steps_an_epoch(task, config)
    set_precision(settings.precision)
    found = {seed: checkpoint.newest(run.checkpoints, report) for seed, run in runs.items()}
    done = {seed: 0 if one is None else one.step for seed, one in found.items()}
    for run in (runs[seed] for seed in runs if done[seed]):
        if not run.saw(task.fingerprint):
            raise UserError(f"{run.folder}: its data have changed since; --fresh starts over")
    for seed in runs:
        if done[seed] >= total:
            report(f"{runs[seed].folder}: complete, {done[seed]} steps")
    failures: list[str] = []
    waiting = sorted((seed for seed in runs if done[seed] < total), key=lambda seed: done[seed])
    for step, equally_far in itertools.groupby(waiting, key=lambda seed: done[seed]):
        seeds = sorted(equally_far)
        if step:
            report(f"{_title(runs, seeds)}: going on after step {step} of {total}")
        for part in _parts(task, config, seeds, device, settings, report):
            sitting = Sitting(task, config, {s: runs[s] for s in part}, device, settings, total)
            sitting.restore([found[seed] for seed in part])
            failures += sitting.train(report)
    if failures:
        count = f"{len(failures)} of {len(runs)} seeds failed: " if len(runs) > 1 else ""
        raise RunFailed(count + "; ".join(failures))


def steps_an_epoch(task: Task, config: TrainConfig) -> int:
    """Also refuses batches that cannot be: callers ask before they claim a folder."""
    if config.batch_size > task.examples:
        raise UserError(
            f"batch_size: got {config.batch_size}, expected at most the {task.examples} "
            "training examples"
        )
    distributed.require_even_shares(config.batch_size)
    return task.examples // config.batch_size


def _title(runs: Mapping[int, Run], seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return str(runs[seeds[0]].folder)
    return f"{runs[seeds[0]].folder.parent} ({len(seeds)} seeds)"


def _parts(
    task: Task,
    config: TrainConfig,
    seeds: list[int],
    device: torch.device,
    settings: Settings,
    report: Callable[[str], None],
) -> list[list[int]]:
    """The seeds, split where they do not fit in memory together."""
    if len(seeds) == 1:
        return [seeds]
    if settings.seeds_at_once is not None:
        return memory.split(seeds, 1.0, settings.seeds_at_once / memory.USABLE)
    with rng.untouched():
        stack = Stack([task.make_model(seeds[0])])
        feed = Feed(task.examples, config.batch_size, task.noise_size, seeds[:1], device)
        update = Update(task, config, stack, feed, 1, settings.precision)
        needed = memory.bytes_a_seed(stack, update.forward) + feed.nbytes
        del stack, feed, update
    free = memory.free_bytes(device)
    parts = memory.split(seeds, needed, free)
    if len(parts) > 1:
        sizes = " + ".join(str(len(part)) for part in parts)
        report(
            f"{len(seeds)} seeds need about {len(seeds) * needed / 2**30:.1f} GiB, "
            f"{free / 2**30:.1f} GiB are free: training {sizes} seeds one after the other"
        )
    return parts
