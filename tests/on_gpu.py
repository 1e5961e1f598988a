"""Shared by tests on CUDA: training runs, and a check that a step never waits for the device."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nps.training.feed import Feed
from nps.training.loop import train
from nps.training.run import Run
from nps.training.signals import Interrupted
from nps.training.sitting import Settings
from nps.training.stack import Stack
from nps.training.update import Update

CUDA = torch.device("cuda")


def go(folder: Path, task: Any, seeds: Sequence[int] = (0,), **settings: Any) -> dict[int, Run]:
    """Train seeds into folder/seed-<s>; returns the runs."""
    runs = {s: Run(folder / f"seed-{s}") for s in seeds}
    for run in runs.values():
        run.folder.mkdir(parents=True, exist_ok=True)
    try:
        train(task, task.config, runs, CUDA, Settings(**settings), lambda text: None)
    except Interrupted:
        assert "stop_at" in settings
    return runs


def assert_reads_nothing_on_the_host(task: Any) -> None:
    """torch raises an error at any operation that waits for the device."""
    stack = Stack([task.make_model(seed) for seed in (0, 1)])
    feed = Feed(task.examples, task.config.batch_size, task.noise_size, (0, 1), CUDA)
    update = Update(task, task.config, stack, feed, 80)
    feed.prepare(0)
    update()
    try:
        torch.cuda.set_sync_debug_mode("error")
        update()
    finally:
        torch.cuda.set_sync_debug_mode("default")
