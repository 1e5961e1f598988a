"""Section 4.1, coordinate arithmetic: rules discovered from raw demonstrations.

Which of four operations changed which point, with which other as argument, is never given; NPS
with 4 rules should give each operation a rule of its own. Paper: MSE 0.01 ± 0.001 against
0.04 ± 0.008 for a routing MLP; tables of rule use with 5 and (commented out) 6 rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nps.experiments.arithmetic.claims import CLAIMS
from nps.experiments.arithmetic.config import Config
from nps.experiments.arithmetic.headline import headline
from nps.experiments.arithmetic.inspect import inspect_arithmetic
from nps.experiments.arithmetic.presets import PRESETS, QUICK
from nps.experiments.arithmetic.report import Tested, write_report
from nps.experiments.arithmetic.task import ArithmeticTask
from nps.experiments.arithmetic.workbench import ArithmeticWorkbench
from nps.experiments.experiment import Experiment
from nps.experiments.headline import Headline, Metrics
from nps.inspect.report import Part, Report
from nps.inspect.workbench import Workbench


class Arithmetic(Experiment[Config, ArithmeticTask]):
    name = "arithmetic"
    about = "Coordinate arithmetic: four operations discovered from demonstrations (section 4.1)."
    subject = "coordinate arithmetic"
    claims = CLAIMS
    config = Config
    presets = PRESETS
    quick = QUICK
    tested = Tested
    threads = 1  # its matrix products are 16 x 64: a second thread costs more than it gains

    def make_task(self, config: Config, device: torch.device) -> ArithmeticTask:
        return ArithmeticTask(config, device)

    def report(self, folder: Path) -> Report:
        return write_report(folder, self)

    def headline(self, metrics: Metrics, config: Mapping[str, Any]) -> Headline:
        return headline(metrics)

    def inspect(self, task: ArithmeticTask, model: Any, options: Any) -> Sequence[Part]:
        return inspect_arithmetic(task, model)

    def workbench(self, task: ArithmeticTask, model: Any) -> Workbench:
        return ArithmeticWorkbench(task, model)
