"""Section 4.1, MNIST transformation: a rule for each of four operations on images of digits.

The model gets a digit and an operation to perform; NPS with 4 rules should use one for each. Paper:
a perfectly diagonal table of operations and rules, MSE 0.02 (an all-black picture has 0.018).
The published program trains on every pair of a chain of four operations, 200 pairs per step; here a
batch of 50 is 50 pairs, as the text says, each from a random position in such a chain. The preset
`mnist-authors` does as the program does, in this and in its rule layer (models/digits_authors.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nps.experiments.experiment import Experiment
from nps.experiments.headline import Headline, Metrics
from nps.experiments.mnist.claims import CLAIMS
from nps.experiments.mnist.config import Config
from nps.experiments.mnist.headline import headline
from nps.experiments.mnist.inspect import InspectOptions, inspect_digits
from nps.experiments.mnist.presets import PRESETS, QUICK
from nps.experiments.mnist.report import Tested, write_report
from nps.experiments.mnist.task import MnistTask
from nps.experiments.mnist.workbench import MnistWorkbench
from nps.inspect.report import Part, Report
from nps.inspect.workbench import Workbench


class Mnist(Experiment[Config, MnistTask]):
    name = "mnist"
    about = "MNIST transformation: a rule for each operation on images of digits (section 4.1)."
    subject = "MNIST transformation"
    claims = CLAIMS
    config = Config
    presets = PRESETS
    quick = QUICK
    tested = Tested
    slow_on_cpu = True
    inspect_options = InspectOptions

    def make_task(self, config: Config, device: torch.device) -> MnistTask:
        return MnistTask(config, device)

    def report(self, folder: Path) -> Report:
        return write_report(folder, self)

    def headline(self, metrics: Metrics, config: Mapping[str, Any]) -> Headline:
        return headline(metrics)

    def inspect(self, task: MnistTask, model: Any, options: InspectOptions) -> Sequence[Part]:
        return inspect_digits(task, model, options)

    def compare(self, task: MnistTask, start: Any, model: Any) -> dict[str, Any]:
        return task.compare(start, model)

    def workbench(self, task: MnistTask, model: Any) -> Workbench:
        return MnistWorkbench(task, model)
