"""How long training on the user's own episodes takes on a CPU, and what is faster."""

from __future__ import annotations

import copy
import time

import torch

from nps.experiments.custom.config import Config
from nps.experiments.custom.task import CustomTask
from nps.models.world_model import WorldModel
from nps.training.task import Batch

FASTEST = "small"
"""The fastest extractor, about five times as fast as the default on a CPU."""
LONG = 20 * 60
"""Seconds above which the user is told."""


def advice(task: CustomTask, model: WorldModel, config: Config) -> str | None:
    """One line if training will take long here; None if not, or if nothing is faster."""
    if task.device.type != "cpu" or config.extractor == FASTEST:
        return None
    steps = config.epochs * (task.examples // config.batch_size)
    seconds = steps * seconds_a_step(task, model, config)
    return slow(seconds) if seconds > LONG else None


def slow(seconds: float) -> str:
    """The line for a training of this many seconds."""
    hours = f"{seconds / 3600:.1f} hours" if seconds > 5400 else f"{seconds / 60:.0f} minutes"
    return (
        f"this takes about {hours} on this CPU; faster: --extractor {FASTEST}, fewer --epochs, "
        "--device cuda"
    )


def seconds_a_step(task: CustomTask, model: WorldModel, config: Config) -> float:
    """Forward and backward pass of one batch, the second of two, on a copy of the model."""
    model = copy.deepcopy(model)
    draw = torch.Generator().manual_seed(0)
    noise = torch.rand(config.batch_size, task.noise_size, generator=draw)
    index = torch.arange(config.batch_size)
    batch = Batch(index, noise, torch.zeros(()), task.phase(0.0))
    for _ in range(2):
        began = time.monotonic()
        task.loss(model, batch)[0].backward()
    return time.monotonic() - began
