"""The law of pictures, for any experiment: they show the trained model and change nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nps.training import checkpoint
from nps.training.log import png
from nps.training.loop import Settings, train
from nps.training.run import Run
from nps.training.task import Task
from tests.training.tools import files

CPU = torch.device("cpu")
SEEDS = (0, 3)
RARELY = {"epochs": 3, "validate_every": 2}
"""Config of a task to check: one epoch is drawn and not validated."""


def drawn(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "figures").glob("*"))


def assert_draws(folder: Path, task: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train with and without pictures, a seed alone and a stack.

    Args:
        folder: an empty one, to train in.
        task: with the config in `RARELY`.
        name: of the picture.
        monkeypatch: takes the task's pictures away.
    """

    def run(title: str, seeds: tuple[int, ...], **settings: Any) -> list[Path]:
        runs = {s: Run(folder / f"{title}-{s}") for s in seeds}
        for each in runs.values():
            each.folder.mkdir()
        how = Settings(seconds_between_saves=0.0, keep=9, **settings)
        train(task, task.config, runs, CPU, how, lambda text: None)
        return [each.folder for each in runs.values()]

    (single,), stack = run("single", (0,), draw_every=1), run("stack", SEEDS, draw_every=2)
    (rare,) = run("rare", (0,))
    model = task.make_model(0).eval()
    untrained = task.draw(model)[name]
    model.load_state_dict(checkpoint.newest(single / "checkpoints", print).weights("last"))
    shown = task.draw(model)[name]
    for picture in (untrained, shown):
        assert picture.dtype == np.uint8
        assert picture.shape[2] == 3
        assert len(np.unique(picture)) > 1
    assert drawn(single) == [f"{name}-epoch-000{epoch}.png" for epoch in (1, 2, 3)]
    assert (single / "figures" / f"{name}-epoch-0003.png").read_bytes() == png(shown)
    assert drawn(stack[0]) == [f"{name}-epoch-000{epoch}.png" for epoch in (2, 3)]
    assert drawn(stack[1]) == []  # only the first seed of a stack
    assert drawn(rare) == [f"{name}-epoch-0003.png"]  # by default, only at the end

    monkeypatch.setattr(type(task), "draw", Task.draw)
    for ours, theirs in zip(
        (single, *stack), (*run("none", (0,)), *run("none-stack", SEEDS)), strict=True
    ):
        assert drawn(theirs) == []
        assert files(ours) == files(theirs)
