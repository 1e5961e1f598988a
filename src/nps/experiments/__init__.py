"""The paper, one module a section. Registration is being in the dictionary below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from nps.errors import UserError, nearest
from nps.experiments import arithmetic
from nps.experiments.experiment import Experiment, Preset
from nps.training.config import from_json
from nps.training.files import told_in_one_line, write_json
from nps.training.run import find_checkpoint
from nps.training.task import Task

EXPERIMENTS: dict[str, Experiment] = {"arithmetic": arithmetic.EXPERIMENT}


def find_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}{nearest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]


def find_preset(name: str) -> tuple[Experiment, Preset]:
    for experiment in EXPERIMENTS.values():
        if name in experiment.presets:
            return experiment, experiment.presets[name]
    names = [preset for experiment in EXPERIMENTS.values() for preset in experiment.presets]
    raise UserError(f"unknown preset {name!r}{nearest(name, names)}")


def load_task(path: Path | str, device: str = "cpu", which: str = "best") -> Task:
    """The task of a run with its trained model, in evaluation mode; needs no model flags.

    Args:
        path: a run folder, or one of its checkpoint folders.
        device: where to put data and model.
        which: the model with the "best" validation score, or the "last".
    """
    if which not in ("best", "last"):
        raise UserError(f"which: got {which!r}, expected best or last")
    run, checkpoint = find_checkpoint(path)
    saved = run.read()
    experiment = find_experiment(saved["experiment"])
    config = from_json(experiment.config, saved["config"])
    task = experiment.make_task(config, saved["seed"], torch.device(device))
    group = "best" if which == "best" and "best" in checkpoint.tensors else "model"
    task.model.load_state_dict(checkpoint.tensors[group])
    task.model.eval()
    return task


def evaluate(path: Path | str, device: str = "cpu", which: str = "best") -> dict[str, Any]:
    """Test metrics of a trained run, also written to its test.json."""
    task = load_task(path, device, which)
    run, checkpoint = find_checkpoint(path)
    metrics = {"which": which, "step": checkpoint.step, **task.test()}
    with told_in_one_line(f"cannot write {run.folder / 'test.json'}"):
        write_json(run.folder / "test.json", metrics)
    return metrics


def load(path: Path | str, device: str = "cpu", which: str = "best") -> nn.Module:
    """The trained model of a run or checkpoint folder, in evaluation mode."""
    return load_task(path, device, which).model
