"""A tiny task that trains in milliseconds, and comparisons that accept no difference at all."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._C._functorch import is_functorch_wrapped_tensor

from nps.training import rng
from nps.training.config import TrainConfig
from nps.training.data import Made
from nps.training.loop import Settings, train
from nps.training.run import Run
from nps.training.signals import Interrupted
from nps.training.task import Task

CONFIG = TrainConfig(
    epochs=4, batch_size=4, learning_rate=1e-2, final_learning_rate=1e-3, validate_every=1
)
CPU = torch.device("cpu")
STEPS = 4 * 5  # 22 examples, batch 4, the incomplete batch left out


class TinyTask(Task):
    """Regression through noise of both kinds: the loop's, and dropout from torch's generator.

    With `dropout=0.0` all randomness is the loop's, as stacks of seeds need it.
    """

    data = Made(22)
    noise_size = 3
    stackable = True

    def __init__(self, dropout: float = 0.2) -> None:
        self.dropout = dropout
        draw = torch.Generator().manual_seed(7)
        self.inputs = torch.randn(self.examples, 3, generator=draw)
        self.seen: list[list[int]] = []
        self.models: list[nn.Module] = []
        self.said: list[str] = []
        self.spoil_at: int | None = None

    def make_model(self, seed):
        with rng.seeded(seed, "init"):
            model = nn.Sequential(
                nn.Linear(3, 8), nn.ReLU(), nn.Dropout(self.dropout), nn.Linear(8, 1)
            )
        self.models.append(model)
        return model

    def loss(self, model, batch):
        x = self.inputs[batch.index] + 0.2 * (batch.noise - 0.5)
        loss = (model(x) - x.sum(-1, keepdim=True)).square().mean()
        if not is_functorch_wrapped_tensor(x):
            self.seen.append(batch.index.tolist())
            if self.spoil_at == len(self.seen):
                loss = loss * float("nan")
        return loss, {"progress": batch.progress}

    def batches(self, split):
        return self.inputs.split(10)  # the last is smaller

    def measure(self, model, batch):
        torch.rand(3)  # a validation that draws random numbers must not disturb the training
        return {"error": (model(batch) - batch.sum(-1, keepdim=True)).square().mean(-1)}

    def judge(self, measured, split):
        return {"score": measured["error"].mean().item()}


def go(
    folder: Path,
    stop_at: int | None = None,
    task: TinyTask | None = None,
    seeds: Sequence[int] = (0,),
    config: TrainConfig = CONFIG,
    **settings: object,
) -> TinyTask:
    """Train in a run folder, to the end or to a step; several seeds in folders of their own."""
    task = task or TinyTask()
    runs = {s: Run(folder if len(seeds) == 1 else folder / f"seed-{s}") for s in seeds}
    how = Settings(**{"stop_at": stop_at, "seconds_between_saves": 1e9, **settings})
    with contextlib.ExitStack() as held:
        for run in runs.values():
            held.enter_context(run.writing())
        try:
            train(task, config, runs, CPU, how, task.said.append)
        except Interrupted:
            assert stop_at is not None
    return task


def files(folder: Path) -> dict[str, bytes]:
    """Everything a run's future depends on, byte for byte."""
    paths = [*sorted((folder / "checkpoints").glob("*/*")), folder / "metrics.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def assert_resumed_equals_whole(
    folder: Path, make_task: Any, *, stops: Sequence[int], last: int
) -> None:
    """A training that is stopped after some steps, and resumed, ends bit for bit as another.

    Args:
        folder: an empty folder.
        make_task: makes a task, as each command does.
        stops: after how many steps it is stopped.
        last: how many steps it has.
    """
    ends = {}
    for name, stopped in {"whole": (), "parts": stops}.items():
        run = Run(folder / name)
        run.folder.mkdir()
        for stop in (*stopped, None):
            task, how = make_task(), Settings(seconds_between_saves=1e9, stop_at=stop)
            with contextlib.nullcontext() if stop is None else pytest.raises(Interrupted):
                train(task, task.config, {0: run}, CPU, how, str)
        ends[name] = files(run.folder)
    whole, parts = ends["whole"], ends["parts"]
    assert whole["metrics.jsonl"] == parts["metrics.jsonl"]
    saved = [name for name in whole if f"step-{last:08}" in name and "manifest" not in name]
    assert len(saved) > 3
    assert all(whole[name] == parts[name] for name in saved)
