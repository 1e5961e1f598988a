"""The paper's experiments, one folder per section. `_ALL` below registers them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nps.errors import UserError, nearest, say
from nps.experiments import rule_names
from nps.experiments.arithmetic import Arithmetic
from nps.experiments.atari import Atari
from nps.experiments.balls import Balls
from nps.experiments.blocks import Blocks
from nps.experiments.custom import Custom
from nps.experiments.experiment import Experiment, Preset
from nps.experiments.mnist import Mnist
from nps.experiments.sprites import Sprites
from nps.experiments.stacks import Stacks
from nps.experiments.start import run_of
from nps.experiments.tested import metrics_path
from nps.files import os_errors_in_one_line, write_json
from nps.training.checkpoint import Checkpoint, Misfit, Tensors, load_weights
from nps.training.config import TrainConfig, from_json
from nps.training.memory import memory_errors_in_one_line
from nps.training.model_folder import is_model_folder, read_card
from nps.training.run import Run, find_checkpoint, run_at
from nps.training.task import Task
from nps.zoo import is_shipped

_ALL: tuple[Experiment[Any, Any], ...] = (
    Arithmetic(),
    Mnist(),
    Blocks(),
    Balls(),
    Stacks(),
    Sprites(),
    Atari(),
    Custom(),
)
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
    if name in EXPERIMENTS:
        choices = ", ".join(EXPERIMENTS[name].presets)
        raise UserError(f"{name} is an experiment, expected one of its presets: {choices}")
    raise UserError(f"unknown preset {name!r}{nearest(name, names)}")


@functools.lru_cache(maxsize=2)
def _task(experiment: str, config: TrainConfig, device: str, stamp: Stamp) -> Task:
    """The task of a config. Cached: the next seed and the run that a run started from reuse it."""
    task: Task = find_experiment(experiment).make_task(config, torch.device(device))
    return task


Stamp = tuple[tuple[str, int, int], ...]
"""Name, size and time of change of the user's own files: with others, a task is made anew."""


def make_task(experiment: Experiment[Any, Any], config: TrainConfig, device: str) -> Task:
    """The task of a config, the one made before if nothing has changed."""
    return _task(experiment.name, config, device, _stamp(experiment, config))


def _stamp(experiment: Experiment[Any, Any], config: TrainConfig) -> Stamp:
    given = experiment.data_field and getattr(config, experiment.data_field)
    if not given:
        return ()
    path = Path(given)
    files = [path, *sorted(path.rglob("*"))] if path.is_dir() else [path]
    known = [(file, file.stat()) for file in files if file.exists()]
    return tuple((str(file), found.st_size, found.st_mtime_ns) for file, found in known)


def experiment_of(path: Path | str) -> Experiment[Any, Any]:
    """The experiment of a run or checkpoint folder."""
    return find_experiment(run_at(path).read()["experiment"])


def config_of(run: Run, changes: Mapping[str, Any] | None = None) -> TrainConfig:
    """The config of a run, from its config.json and what differs from it."""
    saved = run.read()
    experiment = find_experiment(saved["experiment"])
    kind: type[TrainConfig] = experiment.config
    config = {**saved["config"], **_data_beside(run, experiment), **(changes or {})}
    try:
        return from_json(kind, config)
    except UserError as error:
        raise UserError(f"{run.folder / 'config.json'}: damaged, {error}") from None


def _data_beside(run: Run, experiment: Experiment[Any, Any]) -> dict[str, str]:
    """The config field of the data, if they are in the folder of a model."""
    field = experiment.data_field
    if field is None or not is_model_folder(run.folder):
        return {}
    name = run.read()["config"].get(field)
    return (
        {field: str(run.folder.absolute() / name)} if name in read_card(run.folder)["files"] else {}
    )


def model_of(run: Run, task: Task, weights: Tensors) -> nn.Module:
    """The model of a run with some of its weights, in evaluation mode."""
    model = task.make_model(run.read()["seed"])
    try:
        load_weights(model, weights)
    except Misfit as error:  # e.g. data with other images or actions
        raise UserError(f"{run.folder}: its model does not fit the data: {error}") from None
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise UserError(f"{run.folder}: damaged, its model has weights that are not finite")
    if not run.trained_on(task.fingerprint, task.unrecorded_fingerprint):
        say(f"{run.folder}: the data have changed since its training")
    rule_names.apply(run.folder, model)
    return model.eval()


def require_which(which: str) -> None:
    if which not in ("best", "last"):
        raise UserError(f"which: got {which!r}, expected best or last")


def load_task(
    path: Path | str,
    device: str = "cpu",
    which: str = "best",
    changes: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = say,
) -> tuple[Task, nn.Module]:
    """The task of a run and its trained model, in evaluation mode.

    Args:
        path: a run folder, or one of its checkpoint folders.
        device: where to put data and model.
        which: the model with the "best" validation score, or the "last".
        changes: config fields that differ from training, e.g. the path of data that were moved.
        report: takes a line if the newest checkpoint is damaged and an older one is used.
    """
    return _load(path, device, which, changes, report)[2:]


def _load(
    path: Path | str,
    device: str,
    which: str,
    changes: Mapping[str, Any] | None,
    report: Callable[[str], None],
) -> tuple[Run, Checkpoint, Task, nn.Module]:
    require_which(which)
    config = config_of(run_at(path), changes).trained()
    run, checkpoint = find_checkpoint(path, report)
    if which != (found := checkpoint.which(which)):
        why = "not validated yet, so there is" if found == "last" else "a model folder, it has"
        report(f"{run.folder}: {why} no {which} model; using the {found}")
    with memory_errors_in_one_line(str(run.folder)):
        task = make_task(experiment_of(path), config, device)
        return run, checkpoint, task, model_of(run, task, checkpoint.weights(which))


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

    Those of an older checkpoint, of the last model, of another test set (`on`) or of data that have
    changed go to files of their own (`tested.py`), since tables are made from test.json.
    """
    run, checkpoint, task, model = _load(path, device, which, changes, say)
    which = checkpoint.which(which)
    known = run.trained_on(task.fingerprint, task.unrecorded_fingerprint)
    changed = None if known else "changed-data"
    task = with_test_set(path, task, on)
    metrics = {"which": which, "step": checkpoint.step, **(changes or {})}
    if changed is not None:
        metrics["changed_data"] = True
    if on is None:
        metrics |= task.test(model) | _compared_with_start(run, task, model, device)
    else:
        metrics |= {"on": on} | task.test(model)
        if os.path.exists(on):  # one of two files of the same name
            metrics["on_path"] = os.path.abspath(on)
    if is_shipped(run.folder):
        say(f"{run.folder.name} ships with nps, so no file is written")
        return metrics
    file = metrics_path(run, checkpoint, which, on or changed)
    with os_errors_in_one_line(f"cannot write {file}"):
        write_json(file, metrics)
    if file.name != "test.json":
        say(f"written to {file}; tables show test.json, of the run's best model and own data")
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
    return experiment.compare(task, load_task(folder, device)[1], model)
