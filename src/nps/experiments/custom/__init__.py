"""Your own world: a world model of recorded episodes, `nps train world-model --data my.h5`.

The model of section 4.3 on whatever `nps.worlds.custom` reads: square images of one size, discrete
or continuous actions, episodes of any length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch

from nps.errors import UserError
from nps.experiments.custom.config import Config
from nps.experiments.custom.cpu_time import advice
from nps.experiments.custom.presets import ADJUSTABLE, PRESETS, QUICK
from nps.experiments.custom.report import write_report
from nps.experiments.custom.task import CustomTask, require_episodes, with_test_set
from nps.experiments.experiment import Experiment
from nps.experiments.headline import Headline, Metrics
from nps.experiments.world_models.headline import ranking_headline
from nps.experiments.world_models.inspect import inspect_world_model
from nps.experiments.world_models.report import MAIN, Tested
from nps.inspect.report import Part, Report


class Custom(Experiment[Config, CustomTask]):
    name = "world-model"
    about = "A world model of your own episodes: NPS beside a GNN."
    config = Config
    presets = PRESETS
    quick = QUICK
    slow_on_cpu = True
    adjustable = ADJUSTABLE
    data_field = "episodes"
    main_metrics = MAIN
    tested = Tested

    def make_task(self, config: Config, device: torch.device) -> CustomTask:
        return CustomTask(config, device)

    def report(self, folder: Path) -> Report:
        return write_report(folder, self)

    def prepare(self, config: Config) -> None:
        require_episodes(config)

    def headline(self, metrics: Metrics, config: Mapping[str, Any]) -> Headline:
        return ranking_headline(metrics)

    def shorten(self, preset: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fewer epochs, and the fastest extractor if it takes images of this size."""
        changes = dict(QUICK[preset])
        try:
            config = replace(PRESETS[preset].config, **{**changes, **given})
            self.make_task(cast(Config, config), torch.device("cpu"))
        except UserError:  # the images do not fit, or nothing does: then training says so
            del changes["extractor"]
        return changes

    def advice(self, task: CustomTask, model: Any, config: Config) -> str | None:
        return advice(task, model, config)

    def inspect(self, task: CustomTask, model: Any, options: Any) -> Sequence[Part]:
        return inspect_world_model(task, model, task.names)

    def with_test_set(self, task: CustomTask, name: str) -> CustomTask:
        return with_test_set(task, name)
