"""Your own world: a world model of recorded episodes, `nps train world-model --data my.h5`.

The model of section 4.3 on whatever `nps.worlds.custom` reads: images of one size, discrete
or continuous actions, episodes of any length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nps.experiments.custom.config import Config
from nps.experiments.custom.cpu_time import advice
from nps.experiments.custom.inspect import curves_figure, headline, inspect_own
from nps.experiments.custom.presets import ADJUSTABLE, PRESETS, QUICK
from nps.experiments.custom.report import LABELS, write_report
from nps.experiments.custom.task import CustomTask, require_episodes, with_test_set
from nps.experiments.custom.workbench import CustomWorkbench
from nps.experiments.experiment import Experiment
from nps.experiments.headline import Headline, Metrics
from nps.experiments.results import Curve
from nps.experiments.world_models.report import Tested
from nps.inspect.report import Part, Report
from nps.inspect.workbench import Workbench


class Custom(Experiment[Config, CustomTask]):
    name = "world-model"
    about = "A world model of your own episodes: NPS beside a GNN."
    config = Config
    presets = PRESETS
    quick = QUICK
    slow_on_cpu = True
    adjustable = ADJUSTABLE
    data_field = "episodes"
    main_metrics = ("predicted_1", "predicted_5", "predicted_10", "predicted_all", "copied_all")
    tested = Tested
    inspect_in_report = True

    def make_task(self, config: Config, device: torch.device) -> CustomTask:
        return CustomTask(config, device)

    def report(self, folder: Path) -> Report:
        return write_report(folder, self)

    def prepare(self, config: Config) -> None:
        require_episodes(config)

    def headline(self, metrics: Metrics, config: Mapping[str, Any]) -> Headline:
        return headline(metrics, config)

    def advice(self, task: CustomTask, model: Any, config: Config) -> str | None:
        return advice(task, model, config)

    def inspect(self, task: CustomTask, model: Any, options: Any) -> Sequence[Part]:
        return inspect_own(task, model)

    def workbench(self, task: CustomTask, model: Any) -> Workbench:
        return CustomWorkbench(task, model)

    def curves(self, preset: str, log: Curve) -> Sequence[Part]:
        return curves_figure({LABELS.get(preset, preset): [log]})

    def with_test_set(self, task: CustomTask, name: str) -> CustomTask:
        return with_test_set(task, name)
