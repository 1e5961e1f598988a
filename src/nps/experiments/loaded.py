"""`nps.load(run)`: a trained run as one object, with its model, config, metrics and data.

The checkpoint is read at once; data, model and metrics are loaded on first use.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from nps.errors import UserError
from nps.experiments import config_of, find_experiment, make_task, model_of, require_which
from nps.experiments.given import data_given, find_device
from nps.experiments.start import run_of
from nps.inspect.workbench import Workbench
from nps.reading import exists
from nps.rollouts import Rollout
from nps.rules import Trace
from nps.training.checkpoint import Checkpoint
from nps.training.config import TrainConfig
from nps.training.isolation import isolated
from nps.training.model_folder import Card, is_model_folder, main_number, read_card
from nps.training.run import Run, find_checkpoint, run_at, seeds_in
from nps.training.task import Task
from nps.zoo import find_run

Which = Literal["best", "last"]


def load(
    path: Path | str,
    device: torch.device | str = "cpu",
    which: Which = "best",
    *,
    seed: int | None = None,
    data: Path | str | None = None,
) -> LoadedRun:
    """A trained run: its model, config, metrics and data, and what its rules do.

    ::

        run = nps.load("runs/sharp")  # or a model that ships: nps.load("blocks-best")
        run.model                     # the best model on validation, in evaluation mode
        run.trace(n=3)                # what fires on three validation examples

    A damaged checkpoint is skipped with a warning that names it and the one that is used.

    Args:
        path: a run folder, one of its checkpoint folders, a folder of runs of several seeds, or the
            name of a model that ships with nps (`nps models` lists them).
        device: where to put model and data.
        which: the model with the "best" validation score, or the "last".
        seed: of a folder of several seeds, the one to load.
        data: new path of your own episodes if they were moved; for runs on other data, a folder
            that holds their files.
    """
    require_which(which)
    if not str(path).strip():  # Path("") is the current folder
        raise UserError("path: got an empty path, expected a run folder or a model's name")
    folder = _folder_of(find_run(path), seed)
    config_of(run_at(folder))  # a damaged one is named before its checkpoints are compared with it
    skipped: list[str] = []
    run, checkpoint = find_checkpoint(folder, skipped.append)
    if skipped:
        warnings.warn("; ".join(skipped), stacklevel=2)
    return LoadedRun(run, checkpoint, which, find_device(device), data)


class LoadedRun:
    """A trained run, as `nps.load` and `nps.train` return it."""

    folder: Path
    """The run folder."""
    experiment: str
    """Name of the experiment."""
    preset: str
    """Name of the preset that it was trained from."""
    seed: int
    """Its seed."""
    which: Which
    """Whether `model` is the "best" on validation or the "last"; before the first validation, the
    "last"."""
    step: int
    """The step that the model is from."""
    config: TrainConfig
    """The settings of the experiment, as a frozen dataclass."""

    def __init__(
        self,
        run: Run,
        checkpoint: Checkpoint,
        which: Which,
        device: torch.device,
        data: Path | str | None = None,
        task: Task | None = None,
    ) -> None:
        saved = run.read()
        self._run, self._device, self._data, self._task = run, device, data, task
        self._weights = checkpoint.weights(which)
        self.folder, self.which = run.folder, cast("Which", checkpoint.which(which))
        self.experiment, self.preset = str(saved["experiment"]), str(saved["preset"])
        self.seed = int(saved["seed"])
        self.config = config_of(run)
        best = self.which == "best"
        self.step = int(checkpoint.state["best_step"]) if best else checkpoint.step

    @cached_property
    def task(self) -> Task:
        """Data, loss and evaluation, as the training loop uses them."""
        if self._task is not None:
            return self._task
        experiment = find_experiment(self.experiment)
        with isolated(self._device), data_given(experiment, self._data) as changes:
            config = config_of(self._run, changes).trained()
            return make_task(experiment, config, str(self._device))

    @cached_property
    def model(self) -> nn.Module:
        """The trained model, in evaluation mode."""
        with isolated(self._device):
            return model_of(self._run, self.task, self._weights)

    @property
    def data(self) -> Mapping[str, Any]:
        """The sets "train", "validation" and "test", on the device."""
        return self.task.sets

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl, one for each epoch, as they were when first read."""
        return self._run.metrics()

    @cached_property
    def card(self) -> Card | None:
        """What a model folder says of its training and test; None for a run."""
        return read_card(self.folder) if is_model_folder(self.folder) else None

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """The epochs in which a metric was logged, and its values: `curve("validation/mse")`."""
        rows = [(row["epoch"], _flat(row)) for row in self.metrics]
        found = [(epoch, row[name]) for epoch, row in rows if name in row]
        if not found:
            known = dict.fromkeys(key for _, row in rows for key in row)
            raise UserError(f"curve: got {name!r}, expected one of {', '.join(known)}")
        return [epoch for epoch, _ in found], [value for _, value in found]

    def test(self) -> dict[str, Any]:
        """Metrics on the test set, as `nps eval` computes them; writes no file."""
        return self.task.test(self.model)

    @torch.no_grad()
    def trace(self, *inputs: Any, n: int | None = None, split: str = "validation") -> Trace:
        """What fires in the model on some examples.

        Args:
            inputs: of the model, a batch of each: `before, after` (arithmetic), `images, operation`
                (mnist), or `images, action` (world models), where the first may be slots instead;
                `frames, noise` (balls), with a row of noise for each slot.
            n: without inputs, the first n examples of a set (default: 8 or fewer), as `examples(n)`
                gives them.
            split: the set: "validation", "test" or "train"; of balls also "transfer".
        """
        names = self.task.input_names
        if not names:
            raise UserError(f"{self.folder}: runs of {self.experiment} cannot be traced")
        if inputs and len(inputs) != len(names):
            raise UserError(f"trace: got {len(inputs)} inputs, expected {', '.join(names)}")
        tensors = self._on_device(inputs) if inputs else self.examples(n, split)
        return self.task.trace(self.model, *tensors)

    def examples(self, n: int | None = None, split: str = "validation") -> tuple[Tensor, ...]:
        """The model's inputs for the first n examples of a set (default: 8 or fewer)."""
        self._require_split(split)
        return self.task.first_inputs(split, n)

    @torch.no_grad()
    def rollout(
        self,
        images: Any = None,
        actions: Any = None,
        *,
        n: int | None = None,
        steps: int | None = None,
        split: str = "validation",
    ) -> Rollout:
        """Predict many steps, each from the prediction before.

        Args:
            images: first images (n, H, W, C), or those of whole episodes (n, T + 1, H, W, C), whose
                slots the predictions can be compared with.
            actions: (n, T), or (n, T, A) if they are continuous; of mnist, operations; of video,
                where nothing acts, (n, T, 0), and images are the frames before.
            n: without images, the first n episodes of a set (default: 8 or fewer).
            steps: steps of these (default: all).
            split: the set: "validation" or "test".
        """
        if (images is None) != (actions is None):
            raise UserError("rollout: expected images and actions, or neither")
        if images is None:
            self._require_split(split)
            images, actions = self.task.first_episodes(split, n, steps)
        images, actions = self._on_device((images, actions))
        return self.task.rollout(self.model, images, actions)

    @cached_property
    def workbench(self) -> Workbench:
        """Its episodes step by step, with what fires, why, and what if: see `nps.inspect`."""
        return find_experiment(self.experiment).workbench(self.task, self.model)

    def __repr__(self) -> str:
        what = f"{self.experiment}, preset {self.preset}, seed {self.seed}"
        model = f"{self.which} model of step {self.step}{self._main_numbers()}"
        return f"<run of {what}: {model}; {self.folder}>"

    def _main_numbers(self) -> str:
        """The two metrics that an experiment puts first, of the validation before `step`."""
        if self.card is not None:
            number = main_number(self.card)
            return f", test {number}" if number else ""
        try:
            rows = [_flat(row) for row in self.metrics if row.get("step", 0) <= self.step]
        except UserError:  # a damaged log is no reason not to show a run
            return ""
        prefix = "validation/"
        for row in reversed(rows):
            found = {name.removeprefix(prefix): row[name] for name in row if prefix in name}
            shown = [f"{name} {value:.4g}" for name, value in found.items() if name != "score"][:2]
            if shown:
                return f", validation {', '.join(shown)}"
        return ""

    def _require_split(self, split: str) -> None:
        if split not in self.data:
            raise UserError(f"split: got {split!r}, expected one of {', '.join(self.data)}")

    def _on_device(self, values: Any) -> tuple[Tensor, ...]:
        """Tensors on the device; floating-point ones in the dtype of the model's parameters."""
        dtype = next(self.model.parameters()).dtype
        tensors = (torch.as_tensor(value, device=self._device) for value in values)
        return tuple(x.to(dtype) if x.is_floating_point() else x for x in tensors)


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a row by name; those of validation as `validation/<name>`."""
    flat: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            flat[prefix + name] = value
    return flat


def _folder_of(path: Path, seed: int | None) -> Path:
    """The folder of a run, or of one of its checkpoints."""
    run = run_at(path)
    if run.folder == path and not exists(path / "config.json") and path.is_dir():
        seeds = seeds_in(path)
        if seed is None and seeds:
            raise UserError(f"{path}: holds runs of seeds {seeds}; choose one with seed=")
        if seed is not None and not (path / f"seed-{seed}").is_dir():
            raise UserError(f"{path}: no run of seed {seed}; it holds {seeds or 'none'}")
        return path if seed is None else run_of(path, seed).folder
    if seed is not None and run.read()["seed"] != seed:
        raise UserError(f"{run.folder}: a run of seed {run.read()['seed']}, expected {seed}")
    return path
