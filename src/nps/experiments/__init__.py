"""The paper, one module a section. Registration is being in the dictionary below."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nps.errors import UserError, nearest, say
from nps.experiments import arithmetic, atari, blocks, custom, mnist
from nps.experiments.experiment import Experiment, Preset
from nps.experiments.start import run_of
from nps.files import told_in_one_line, write_json
from nps.training.config import TrainConfig, from_json
from nps.training.run import Run, find_checkpoint
from nps.training.task import Task

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (arithmetic, mnist, blocks, atari, custom)
}


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


@functools.lru_cache(maxsize=2)
def _task(experiment: str, config: TrainConfig, device: str) -> Task:
    """The task of a config, kept for the next seed; two, for a run and the one it began with."""
    return find_experiment(experiment).make_task(config, torch.device(device))


def experiment_of(path: Path | str) -> Experiment:
    """The experiment of a run or checkpoint folder."""
    return find_experiment(find_checkpoint(path)[0].read()["experiment"])


def load_task(
    path: Path | str,
    device: str = "cpu",
    which: str = "best",
    changes: Mapping[str, Any] | None = None,
) -> tuple[Task, nn.Module]:
    """The task of a run and its trained model, in evaluation mode; needs no model flags.

    Args:
        path: a run folder, or one of its checkpoint folders.
        device: where to put data and model.
        which: the model with the "best" validation score, or the "last".
        changes: fields of the config that are other than in training: where data lies now.
    """
    if which not in ("best", "last"):
        raise UserError(f"which: got {which!r}, expected best or last")
    run, checkpoint = find_checkpoint(path)
    saved = run.read()
    experiment = find_experiment(saved["experiment"])
    config = from_json(experiment.config, {**saved["config"], **(changes or {})}).trained()
    task = _task(experiment.name, config, device)
    model = task.make_model(saved["seed"])
    try:
        model.load_state_dict(checkpoint.weights(which))
    except RuntimeError as error:  # e.g. data with other images or actions
        _, first, *more = (line.strip() for line in str(error).splitlines())
        others = f" and {len(more)} more" if more else ""
        raise UserError(f"{run.folder}: its model does not fit the data: {first}{others}") from None
    if not run.trained_on(task.fingerprint):
        say(f"{run.folder}: the data have changed since its training")
    return task, model.eval()


def elsewhere(path: Path | str, task: Task, on: str | None) -> Task:
    """The task of a run with another test set, if one is named."""
    if on is None:
        return task
    experiment = experiment_of(path)
    if experiment.elsewhere is None:
        raise UserError(f"--on: a run of {experiment.name} has one test set")
    return experiment.elsewhere(task, on)


def evaluate(
    path: Path | str,
    device: str = "cpu",
    which: str = "best",
    changes: Mapping[str, Any] | None = None,
    on: str | None = None,
) -> dict[str, Any]:
    """Test metrics of a trained run, also written to its test.json.

    Those of another test set (`on`) go to a file of their own, test-on-<name>.json: tables are made
    of test.json.
    """
    task, model = load_task(path, device, which, changes)
    task = elsewhere(path, task, on)
    run, checkpoint = find_checkpoint(path)
    metrics = {"which": which, "step": checkpoint.step, **(changes or {})}
    if on is None:
        name = "test.json"
        metrics |= task.test(model) | _compared_with_start(run, task, model, device)
    else:
        name = f"test-on-{Path(on).stem}.json"
        metrics |= {"on": on} | task.test(model)
    with told_in_one_line(f"cannot write {run.folder / name}"):
        write_json(run.folder / name, metrics)
    return metrics


def _compared_with_start(run: Run, task: Task, model: nn.Module, device: str) -> dict[str, Any]:
    """What a run that began with the model of another did to it."""
    saved = run.read()
    compare, start = find_experiment(saved["experiment"]).compare, saved["config"].get("start_from")
    if compare is None or start is None:
        return {}
    folder = run_of(start, saved["seed"]).folder
    if not folder.is_dir():
        say(f"{run.folder}: began with {folder}, which is gone: not compared with it")
        return {}
    return compare(task, load(folder, device), model)


def load(path: Path | str, device: str = "cpu", which: str = "best") -> nn.Module:
    """The trained model of a run or checkpoint folder, in evaluation mode."""
    return load_task(path, device, which)[1]
