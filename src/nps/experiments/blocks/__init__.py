"""Section 4.3, physics environment: world models of blocks that push one another.

C-SWM with its GNN, against the same model with NPS in place of the GNN. Presets with "slots" use
the text's encoder, four convolutions and slot attention; the others use C-SWM's extractors, as in
the study that the paper's setup is from (Ke et al. 2021). Paper: NPS with one rule and one stage is
better than the GNN after 1, 5 and 10 steps (a figure without numbers). C-SWM's 2D shapes check the
pipeline: the published H@1 is 100, 100 and 99.9 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nps.experiments.blocks.claims import CLAIMS
from nps.experiments.blocks.config import Config
from nps.experiments.blocks.headline import headline
from nps.experiments.blocks.inspect import inspect_blocks
from nps.experiments.blocks.presets import PRESETS, QUICK
from nps.experiments.blocks.report import write_report
from nps.experiments.blocks.task import BlocksTask, with_test_set
from nps.experiments.blocks.workbench import BlocksWorkbench
from nps.experiments.experiment import Experiment
from nps.experiments.headline import Headline, Metrics
from nps.experiments.world_models.report import MAIN, Tested
from nps.inspect.report import Part, Report
from nps.inspect.workbench import Workbench


class Blocks(Experiment[Config, BlocksTask]):
    name = "blocks"
    about = "World models of blocks that push one another: NPS against a GNN (section 4.3)."
    subject = "pushing blocks"
    claims = CLAIMS
    config = Config
    presets = PRESETS
    quick = QUICK
    slow_on_cpu = True
    main_metrics = MAIN
    tested = Tested

    def make_task(self, config: Config, device: torch.device) -> BlocksTask:
        return BlocksTask(config, device)

    def report(self, folder: Path) -> Report:
        return write_report(folder, self)

    def headline(self, metrics: Metrics, config: Mapping[str, Any]) -> Headline:
        return headline(metrics, config)

    def inspect(self, task: BlocksTask, model: Any, options: Any) -> Sequence[Part]:
        return inspect_blocks(task, model)

    def workbench(self, task: BlocksTask, model: Any) -> Workbench:
        return BlocksWorkbench(task, model)

    def with_test_set(self, task: BlocksTask, name: str) -> BlocksTask:
        return with_test_set(task, name)
