"""`nps.train`: the command `nps train` for scripts and notebooks.

It leaves the process as it found it: when it returns or raises, locks are released and signal
handlers, random state and torch's settings are restored.
"""

from __future__ import annotations

import inspect
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import torch

from nps.errors import RunFailed, UserError, nearest, say
from nps.experiments import EXPERIMENTS, find_preset
from nps.experiments.experiment import Experiment, Preset
from nps.experiments.given import data_given, find_device
from nps.experiments.loaded import LoadedRun
from nps.experiments.options import require_options, require_start
from nps.experiments.train_runs import runs_in, train_runs
from nps.training import distributed
from nps.training.config import Settings, TrainConfig, from_json, to_json
from nps.training.isolation import isolated
from nps.training.precision import Precision
from nps.training.run import find_checkpoint
from nps.training.signals import Interrupted


def train(
    preset: str | TrainConfig,
    /,
    *,
    out: Path | str,
    seed: int = 0,
    seeds: int = 1,
    data: Path | str | None = None,
    device: torch.device | str = "cpu",
    precision: Precision = "float32",
    fresh: bool = False,
    progress: bool = True,
    save_every: float = 30.0,
    draw_every: int | None = None,
    at_once: int | None = None,
    capture: bool = True,
    tensorboard: bool = False,
    **changes: Any,
) -> LoadedRun:
    """Train a preset into a run folder, as `nps train` does, and return the trained run.

    The same call again resumes, bit for bit, and so does the command. A training of a few seconds::

        run = nps.train("arithmetic", out="runs/a", epochs=5, rules=5)
        run.trace(n=3)

    It blocks until the training is done. Ctrl-C (in a notebook: interrupt) finishes the step,
    saves, and raises `KeyboardInterrupt`; a second one raises at once. SIGTERM saves, too, and is
    then handed on to the caller's handler. In a thread there are no signals to stop it.

    Args:
        preset: a name of `nps.presets()`, or a config.
        out: run folder; with `seeds`, the folder that the runs go into.
        seed: seed of initialisation, order and noise; with `seeds`, the first.
        seeds: number of seeds to train, each as its own run; returns the run of the first.
            `nps.load(out, seed=s)` loads another.
        data: your own episodes, for world-model presets; for the others, a folder that holds their
            data files.
        device: where to train.
        precision: float32 is exact; tf32 and bf16 are faster.
        fresh: delete the run in `out` and start over.
        progress: show progress: a live line in a terminal, otherwise a line now and then.
        save_every: minimum seconds between checkpoints.
        draw_every: epochs between pictures in figures/; by default, once at the end.
        at_once: largest number of seeds in one stack; by default, all that fit in memory.
        capture: on cuda, capture the training step as a CUDA graph.
        tensorboard: also write TensorBoard logs.
        changes: fields of the config that differ from the preset's, such as `rules` or `epochs`.

    Raises:
        UserError: a `ValueError`; an argument is wrong, or `out` holds another run.
        RunFailed: a `RuntimeError`; a loss is not finite, or the disk is full.
    """
    with _arguments_in_errors():
        name, experiment, config = _resolve(preset, changes)
        where = find_device(device)
        require_options(out, seeds, at_once, draw_every, save_every)
        _require_precision(precision)
        if distributed.active() or distributed.started_by_torchrun():
            raise UserError("nps.train trains in one process; for several: torchrun -m nps train …")
        settings = Settings(
            tensorboard=tensorboard,
            capture=capture,
            precision=precision,
            seeds_at_once=at_once,
            draw_every=draw_every,
            seconds_between_saves=save_every,
            progress=progress,
            call=_call(name, config, experiment, seed, seeds),
        )
        runs = runs_in(Path(out), seed, seeds)
        with data_given(experiment, data) as given, isolated(where, experiment.threads):
            config = from_json(type(config), {**to_json(config), **given})
            require_start(experiment, experiment.presets[name], config, runs, name)
            try:
                task = train_runs(experiment, name, config, runs, where, settings, say, fresh=fresh)
            except Interrupted as stop:
                stopped = stop.with_traceback(None)  # which would keep the session in memory
            else:
                same = config == config.trained()  # else the model is built without its start
                trained = find_checkpoint(runs[seed].folder)
                return LoadedRun(*trained, "best", where, data, task if same else None)
    message = f"{stopped}; the same call resumes from there"
    if stopped.signum == signal.SIGINT:
        raise KeyboardInterrupt(message)
    say(message)
    signal.raise_signal(stopped.signum)  # it is for the caller, whose handler is in place again
    raise stopped


def presets() -> Presets:
    """All presets by name, each with its `config` and what it is `about`."""
    return Presets(
        (name, preset)
        for experiment in EXPERIMENTS.values()
        for name, preset in experiment.presets.items()
    )


class Presets(dict[str, Preset]):
    """Presets by name; shown as a list of names and what they are."""

    def __repr__(self) -> str:
        return "\n".join(f"{name:28} {preset.about}" for name, preset in self.items())

    def __missing__(self, name: str) -> Preset:
        raise UserError(f"unknown preset {name!r}{nearest(name, self)}")


def _resolve(
    given: str | TrainConfig, changes: Mapping[str, Any]
) -> tuple[str, Experiment[Any, Any], TrainConfig]:
    """The preset's name, its experiment, and the config with its changes."""
    if isinstance(given, TrainConfig):
        name, experiment = _preset_of(given)
        config = given
    else:
        name = str(given)
        experiment, preset = find_preset(name)
        config = preset.config
    known = to_json(config)
    options = inspect.signature(train).parameters.keys() - {"preset", "changes"}
    for key in changes.keys() - known.keys():
        raise UserError(f"nps.train: unknown argument {key!r}{nearest(key, {*known, *options})}")
    return name, experiment, from_json(experiment.config, {**known, **changes})


def _preset_of(config: TrainConfig) -> tuple[str, Experiment[Any, Any]]:
    """The preset nearest to a config: a run records the preset that it was made from."""
    for experiment in EXPERIMENTS.values():
        if experiment.config is type(config):
            fields = to_json(config).items()
            shared = {
                name: len(fields & to_json(preset.config).items())
                for name, preset in experiment.presets.items()
            }
            return max(shared, key=shared.__getitem__), experiment
    raise UserError(f"config: got {type(config).__qualname__}, expected that of an experiment")


def _require_precision(precision: str) -> None:
    if precision not in get_args(Precision):
        choices = ", ".join(get_args(Precision))
        raise UserError(f"precision: got {precision!r}, expected one of {choices}")


def _call(
    name: str, config: TrainConfig, experiment: Experiment[Any, Any], seed: int, seeds: int
) -> str:
    """The call as provenance records it: without paths, like everything there."""
    preset = to_json(experiment.presets[name].config)
    changed = {key: value for key, value in to_json(config).items() if value != preset[key]}
    changed.pop(experiment.data_field or "", None)
    changed |= {"seed": seed} | ({"seeds": seeds} if seeds > 1 else {})
    return f"nps.train({name!r}, {', '.join(f'{key}={value!r}' for key, value in changed.items())})"


@contextmanager
def _arguments_in_errors() -> Iterator[None]:
    """Errors name `fresh=True` and `out=` instead of the flags `--fresh` and `--out`."""

    def argument(flag: re.Match[str]) -> str:
        name = flag[1].replace("-", "_")
        return name if flag[2] else "fresh=True" if name == "fresh" else f"{name}="

    try:
        yield
    except (UserError, RunFailed) as error:
        text = re.sub(r"(?<!\S)--([a-z][a-z-]*)(?=(:)?)", argument, str(error))
        if text == str(error):
            raise
        raise type(error)(text) from None
