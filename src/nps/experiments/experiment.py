"""What an experiment is: presets, a task, a report. One module a section of the paper holds one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nps.inspect.report import Block, Report
from nps.training.config import TrainConfig
from nps.training.task import Task


@dataclass(frozen=True)
class Preset:
    """A complete, named config: nothing else is needed to repeat a published number."""

    about: str
    config: TrainConfig
    after: str | None = None
    """The preset whose trained models it begins with; its config has a field `start_from`."""


@dataclass(frozen=True)
class NoOptions:
    """An experiment's `nps inspect` without flags of its own."""


@dataclass(frozen=True)
class Look:
    """What `nps inspect` shows of a trained model."""

    show: Callable[[Any, Any, Any], Sequence[Block]]
    """(task, model, options) -> tables, lines, pictures. Writes nothing."""
    options: type = NoOptions
    """Dataclass of its flags, each with a default and a line of documentation."""


@dataclass(frozen=True)
class Experiment:
    """One section of the paper."""

    name: str
    about: str
    config: type[TrainConfig]
    presets: Mapping[str, Preset]
    make_task: Callable[[Any, torch.device], Task]
    """(config, device) -> data and loss."""
    write_report: Callable[[Path, Experiment], Report]
    """(path of runs, the experiment itself) -> tables and figures."""
    threads: int | None
    """Torch threads that suit its sizes on a CPU; None leaves torch's default."""
    quick: Mapping[str, Mapping[str, Any]]
    """Presets of the short version, each with the fields it changes."""
    heavy: bool = False
    """On a CPU the short version is what `nps run` does unless told otherwise."""
    look: Look | None = None
    """What `nps inspect` shows of its runs."""
    compare: Callable[[Any, Any, Any], dict[str, Any]] | None = None
    """(task, the model it began with, model) -> more test metrics, of presets `after` another."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Config fields that `nps run` takes as flags, each with a line of help; they hold for all
    presets, and their values name the folder of the runs."""
    prepare: Callable[[Any], None] | None = None
    """What `nps run` does with each config before anything is trained: make data, or refuse."""
    main: Sequence[str] = ()
    """Test metrics that a terminal shows of a sweep, where there are too many for its width."""
    data_field: str | None = None
    """The config's field that holds the place of the user's own data, which --data sets."""
    elsewhere: Callable[[Any, str], Task] | None = None
    """(task, what --on says) -> the task with another test set."""
