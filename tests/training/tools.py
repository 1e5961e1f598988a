"""A tiny task that trains in milliseconds, and comparisons that accept no difference at all."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from nps.training import rng
from nps.training.config import TrainConfig
from nps.training.loop import Settings, train
from nps.training.run import Run
from nps.training.signals import Interrupted

CONFIG = TrainConfig(
    epochs=4, batch_size=4, learning_rate=1e-2, final_learning_rate=1e-3, validate_every=1
)
STEPS = 4 * 5  # 22 examples, batch 4, the incomplete batch left out


class TinyTask:
    """Regression through dropout of both kinds: our generator's and torch's global one."""

    examples = 22

    def __init__(self, seed: int = 0) -> None:
        with rng.seeded(seed, "init"):
            self.model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
        draw = torch.Generator().manual_seed(7)
        self.inputs = torch.randn(self.examples, 3, generator=draw)
        self.seen: list[list[int]] = []
        self.spoil_at: int | None = None

    def loss(self, index, noise, progress):
        self.seen.append(index.tolist())
        x = self.inputs[index]
        x = x + 0.1 * torch.randn(x.shape, generator=noise)
        loss = (self.model(x) - x.sum(-1, keepdim=True)).square().mean()
        if self.spoil_at == len(self.seen):
            loss = loss * float("nan")
        return loss, {"progress": torch.tensor(progress)}

    def validate(self):
        torch.rand(3)  # a careless validation must not disturb the training
        target = self.inputs.sum(-1, keepdim=True)
        return {"score": (self.model(self.inputs) - target).square().mean().item()}

    def test(self):
        return self.validate()


def go(folder: Path, stop_at: int | None = None, task: TinyTask | None = None) -> TinyTask:
    """Train in a run folder, to the end or to a step."""
    task = task or TinyTask()
    run = Run(folder)
    with run.writing():
        try:
            settings = Settings(stop_at=stop_at, seconds_between_saves=1e9)
            train(task, CONFIG, run, 0, settings, lambda text: None)
        except Interrupted:
            assert stop_at is not None
    return task


def files(folder: Path) -> dict[str, bytes]:
    """Everything a run's future depends on, byte for byte."""
    paths = [*sorted((folder / "checkpoints").glob("*/*")), folder / "metrics.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
