"""Shapes stack (paper, section 4.2): where the shapes of a falling tower go, from one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nps.experiments.experiment import Experiment
from nps.experiments.headline import Headline, Metrics
from nps.experiments.stacks.claims import CLAIMS
from nps.experiments.stacks.config import Config
from nps.experiments.stacks.data import prepare
from nps.experiments.stacks.headline import headline
from nps.experiments.stacks.inspect import inspect_stacks
from nps.experiments.stacks.presets import PRESETS, QUICK
from nps.experiments.stacks.report import Tested, write_report
from nps.experiments.stacks.task import StacksTask
from nps.experiments.stacks.workbench import StacksWorkbench
from nps.inspect.report import Part, Report
from nps.inspect.workbench import Workbench

__all__ = ["PRESETS", "QUICK", "Config", "Stacks", "StacksTask"]


class Stacks(Experiment[Config, StacksTask]):
    name = "stacks"
    about = "Shapes stack: where shapes of a falling tower go, from one picture (section 4.2)."
    subject = "shapes stack"
    claims = CLAIMS
    config = Config
    presets = PRESETS
    quick = QUICK
    slow_on_cpu = True
    main_metrics = ("best10_p1", "best10_p2", "p1", "p2", "four_best10_p1", "four_best10_p2")
    tested = Tested

    def make_task(self, config: Config, device: torch.device) -> StacksTask:
        prepare(config.settings)
        return StacksTask(config, device)

    def prepare(self, config: Config) -> None:
        prepare(config.settings)

    def report(self, folder: Path) -> Report:
        return write_report(folder, self)

    def headline(self, metrics: Metrics, config: Mapping[str, Any]) -> Headline:
        return headline(metrics, config)

    def inspect(self, task: StacksTask, model: Any, options: Any) -> Sequence[Part]:
        return inspect_stacks(task, model)

    def workbench(self, task: StacksTask, model: Any) -> Workbench:
        return StacksWorkbench(task, model)
