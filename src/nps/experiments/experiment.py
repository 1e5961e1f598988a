"""What an experiment is: settings, presets, a task, a report. Each section of the paper is a folder
with `config.py`, `task.py`, `report.py`, `presets.py` and, in `__init__.py`, one `Experiment`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import torch

from nps.errors import UserError
from nps.experiments.claims import Claim
from nps.experiments.headline import Headline, Metrics
from nps.experiments.results import Result, read_results
from nps.inspect.report import Part, Report
from nps.inspect.workbench import Workbench
from nps.training.config import TrainConfig
from nps.training.task import Task


@dataclass(frozen=True)
class Preset:
    """A complete, named config: all that is needed to repeat a published number."""

    about: str
    config: TrainConfig
    starts_from: str | None = None
    """Preset whose trained models these runs start from; the config has a field `start_from`."""


@dataclass(frozen=True)
class NoOptions:
    """For experiments whose `nps inspect` has no flags of its own."""


C = TypeVar("C", bound=TrainConfig)
T = TypeVar("T", bound=Task)


class Experiment(ABC, Generic[C, T]):
    """One section of the paper. A subclass sets the attributes and writes the two abstract methods;
    the other methods have defaults for experiments that need nothing special."""

    name: str
    about: str
    """One line of help."""
    subject: str = ""
    """Its name in tables of claims."""
    claims: Sequence[Claim] = ()
    """What the paper claims about it, the main claim first; empty if it is not of the paper."""
    config: type[C]
    presets: Mapping[str, Preset]
    quick: Mapping[str, Mapping[str, Any]]
    """Presets that `nps run --quick` trains, each with the config fields that it changes."""
    slow_on_cpu: bool = False
    """If True, `nps run` on a CPU is quick unless --full is given."""
    threads: int | None = None
    """Number of torch threads that suits its sizes on a CPU; None keeps torch's default."""
    flags: Mapping[str, str] = MappingProxyType({})
    """Config fields that are flags of `nps run`, with their help. They apply to all presets, and
    their values become part of the output folder's name."""
    adjustable: Mapping[str, str] = MappingProxyType({})
    """Config fields that may be given to `nps run` for all presets, with their help. Unlike `flags`
    they keep each preset's own value unless given, and name no folder."""
    data_field: str | None = None
    """Config field for the path of the user's own data, set by --data."""
    main_metrics: Sequence[str] = ()
    """Test metrics that `nps sweep` prints; all of them are in its table.md. Empty: all."""
    tested: Any = dict[str, Any]
    """Type of the test metrics, as far as the report relies on them (see `nps.schema`)."""
    inspect_in_report: bool = False
    """If True, the report of `nps run` also has what `nps inspect` shows of the first seed of each
    preset."""
    inspect_options: type = NoOptions
    """Dataclass of the flags that `nps inspect` takes, each with a default and a docstring."""

    @abstractmethod
    def make_task(self, config: C, device: torch.device) -> T:
        """Load or make the data, and return the task that trains on it."""

    @abstractmethod
    def report(self, folder: Path) -> Report:
        """Tables and figures of the tested runs in `folder`."""

    def published(self, folder: Path) -> list[Result]:
        """The published runs of the table in `folder`, which decide whether claims hold."""
        return read_results(folder)

    def left_out(self, folder: Path) -> Mapping[str, str]:
        """Groups with runs that do not count any more, each with a sentence that says why."""
        return {}

    def headline(self, metrics: Metrics, config: Mapping[str, Any]) -> Headline | None:
        """The few test metrics of a run that matter, with a verdict, for `nps eval`.

        None shows all metrics.

        Args:
            metrics: what `Task.test` returned.
            config: the fields of the run's config.
        """
        return None

    def prepare(self, config: C) -> None:
        """Make or check the data of a config. `nps run` calls it before anything is trained."""

    def shorten(self, preset: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The fields that `nps run --quick` changes in a preset; `given` are set by flags."""
        return self.quick.get(preset, {})

    def advice(self, task: T, model: Any, config: C) -> str | None:
        """A line for the user before a new training, e.g. that it takes long here."""
        return None

    def inspect(self, task: T, model: Any, options: Any) -> Sequence[Part]:
        """What `nps inspect` shows of a trained model. Writes no files."""
        raise UserError(f"runs of {self.name} cannot be inspected")

    def workbench(self, task: T, model: Any) -> Workbench:
        """What `nps view` shows of a trained model: its episodes, what can be read of a slot."""
        raise UserError(f"runs of {self.name} cannot be viewed")

    def curves(self, preset: str, log: list[dict[str, Any]]) -> Sequence[Part]:
        """Figures of the metric log of a run, which `nps inspect` adds."""
        return ()

    def with_test_set(self, task: T, name: str) -> T:
        """The task with another test set: the value of `--on` in `nps eval` and `nps inspect`."""
        raise UserError(f"--on: runs of {self.name} have only one test set")

    def compare(self, task: T, start: Any, model: Any) -> dict[str, Any]:
        """More test metrics for a run that started from another: `start` is that other's model."""
        return {}
