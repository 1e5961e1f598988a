"""Shared by tests on CUDA: training runs, and a check that a step never waits for the device."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nps.training.batches import Batches
from nps.training.loop import Settings, train
from nps.training.run import Run
from nps.training.signals import Interrupted
from nps.training.stack import Stack
from nps.training.state import State
from nps.training.step import Step

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


def assert_reads_nothing_on_the_host(task: Any, seeds: Sequence[int] = (0, 1)) -> None:
    """torch raises an error at any operation that waits for the device."""
    stack = Stack([task.make_model(seed) for seed in seeds])
    batches = Batches(task.data, task.config.batch_size, task.noise_size, seeds, CUDA)
    step = Step(task, task.config, State(stack, task.config, 80), batches, 80)
    batches.prepare(0)
    step()
    try:
        torch.cuda.set_sync_debug_mode("error")
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
