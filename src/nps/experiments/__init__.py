"""The paper's experiments, one folder per section. `_ALL` below registers them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nps.errors import UserError, nearest, say
from nps.experiments.arithmetic import Arithmetic
from nps.experiments.atari import Atari
from nps.experiments.blocks import Blocks
from nps.experiments.custom import Custom
from nps.experiments.experiment import Experiment, Preset
from nps.experiments.mnist import Mnist
from nps.experiments.start import run_of
from nps.files import os_errors_in_one_line, write_json
from nps.training.config import TrainConfig, from_json
from nps.training.memory import memory_errors_in_one_line
from nps.training.run import Run, find_checkpoint
from nps.training.task import Task

_ALL: tuple[Experiment[Any, Any], ...] = (Arithmetic(), Mnist(), Blocks(), Atari(), Custom())
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}


def find_experiment(name: str) -> Experiment[Any, Any]:
    if name not in EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}{nearest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]


def find_preset(name: str) -> tuple[Experiment[Any, Any], Preset]:
    """A preset by its name, and the experiment it belongs to."""
    for experiment in EXPERIMENTS.values():
        if name in experiment.presets:
            return experiment, experiment.presets[name]
    names = [preset for experiment in EXPERIMENTS.values() for preset in experiment.presets]
    raise UserError(f"unknown preset {name!r}{nearest(name, names)}")


@functools.lru_cache(maxsize=2)
def _task(experiment: str, config: TrainConfig, device: str) -> Task:
    """The task of a config. Cached: the next seed and the run that a run started from reuse it."""
    task: Task = find_experiment(experiment).make_task(config, torch.device(device))
    return task


def experiment_of(path: Path | str) -> Experiment[Any, Any]:
    """The experiment of a run or checkpoint folder."""
    return find_experiment(find_checkpoint(path)[0].read()["experiment"])


def load_task(
    path: Path | str,
    device: str = "cpu",
    which: str = "best",
    changes: Mapping[str, Any] | None = None,
) -> tuple[Task, nn.Module]:
    """The task of a run and its trained model, in evaluation mode.

    Args:
        path: a run folder, or one of its checkpoint folders.
        device: where to put data and model.
        which: the model with the "best" validation score, or the "last".
        changes: config fields that differ from training, e.g. the path of data that were moved.
    """
    if which not in ("best", "last"):
        raise UserError(f"which: got {which!r}, expected best or last")
    run, checkpoint = find_checkpoint(path)
    saved = run.read()
    experiment = find_experiment(saved["experiment"])
    config = from_json(experiment.config, {**saved["config"], **(changes or {})}).trained()
    with memory_errors_in_one_line(str(run.folder)):
        task = _task(experiment.name, config, device)
        model = task.make_model(saved["seed"])
    weights = checkpoint.weights(which)
    try:
        model.load_state_dict(weights)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        # Data with other images or actions; for the others, a damaged checkpoint.
        first, *more = [line.strip() for line in str(error).splitlines()[1:]] or [str(error)]
        others = f" and {len(more)} more" if more else ""
        raise UserError(f"{run.folder}: its model does not fit the data: {first}{others}") from None
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise UserError(f"{run.folder}: damaged, its model has weights that are not finite")
    if not run.trained_on(task.fingerprint):
        say(f"{run.folder}: the data have changed since its training")
    return task, model.eval()


def with_test_set(path: Path | str, task: Task, name: str | None) -> Task:
    """The task of a run, with another test set if one is named."""
    if name is None:
        return task
    other: Task = experiment_of(path).with_test_set(task, name)
    return other


def evaluate(
    path: Path | str,
    device: str = "cpu",
    which: str = "best",
    changes: Mapping[str, Any] | None = None,
    on: str | None = None,
) -> dict[str, Any]:
    """Test a trained run; returns the metrics and writes them to its test.json.

    Metrics of another test set (`on`) go to test-on-<name>.json instead, since tables are made from
    test.json.
    """
    task, model = load_task(path, device, which, changes)
    task = with_test_set(path, task, on)
    run, checkpoint = find_checkpoint(path)
    metrics = {"which": which, "step": checkpoint.step, **(changes or {})}
    if on is None:
        name = "test.json"
        metrics |= task.test(model) | _compared_with_start(run, task, model, device)
    else:
        name = f"test-on-{Path(on).stem}.json"
        metrics |= {"on": on} | task.test(model)
    with os_errors_in_one_line(f"cannot write {run.folder / name}"):
        write_json(run.folder / name, metrics)
    return metrics


def _compared_with_start(run: Run, task: Task, model: nn.Module, device: str) -> dict[str, Any]:
    """How a run that started from another's model differs from it."""
    saved = run.read()
    start = saved["config"].get("start_from")
    if start is None:
        return {}
    folder = run_of(start, saved["seed"]).folder
    if not folder.is_dir():
        say(f"{run.folder}: not compared with the run it started from: {folder} does not exist")
        return {}
    experiment = find_experiment(saved["experiment"])
    return experiment.compare(task, load(folder, device), model)


def load(path: Path | str, device: str = "cpu", which: str = "best") -> nn.Module:
    """The trained model of a run or checkpoint folder, in evaluation mode."""
    return load_task(path, device, which)[1]
