"""Section 4.3, Sprites-MOT: objects found by iterative refinement or slot attention, and tracked.

OP3 (Veerapaneni et al. 2019), OP3 with sequential NPS in place of its interaction, and the model of
bouncing balls as a tracker, with the same interactions. The paper,
by the protocol of Weis et al. (2021): MOTA 90.7 and MOTP 79.9, OP3 89.1 and 78.4; the latter are
the public leaderboard's numbers. The sprites of the benchmark do not touch, so `--bounce` is a
variant in which they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nps.experiments.experiment import Experiment
from nps.experiments.headline import Headline, Metrics
from nps.experiments.sprites.claims import CLAIMS
from nps.experiments.sprites.config import Config
from nps.experiments.sprites.headline import headline
from nps.experiments.sprites.inspect import inspect_sprites
from nps.experiments.sprites.presets import PRESETS, QUICK
from nps.experiments.sprites.report import Tested, write_report
from nps.experiments.sprites.task import SpritesTask
from nps.experiments.sprites.workbench_op3 import OP3Workbench
from nps.experiments.sprites.workbench_tracker import TrackerWorkbench
from nps.inspect.report import Part, Report
from nps.inspect.workbench import Workbench
from nps.models.tracker import Tracker

__all__ = ["PRESETS", "QUICK", "Config", "Sprites", "SpritesTask"]


class Sprites(Experiment[Config, SpritesTask]):
    name = "sprites"
    about = "Sprites-MOT: objects found and tracked, with OP3 and with rules (section 4.3)."
    subject = "Sprites-MOT"
    claims = CLAIMS
    config = Config
    presets = PRESETS
    quick = QUICK
    slow_on_cpu = True
    main_metrics = ("mota", "motp", "ahead1_mota", "ahead3_mota", "mse", "ahead1_mse")
    tested = Tested

    def make_task(self, config: Config, device: torch.device) -> SpritesTask:
        return SpritesTask(config, device)

    def report(self, folder: Path) -> Report:
        return write_report(folder, self)

    def headline(self, metrics: Metrics, config: Mapping[str, Any]) -> Headline:
        return headline(metrics, config)

    def inspect(self, task: SpritesTask, model: Any, options: Any) -> Sequence[Part]:
        return inspect_sprites(task, model)

    def workbench(self, task: SpritesTask, model: Any) -> Workbench:
        return (TrackerWorkbench if isinstance(model, Tracker) else OP3Workbench)(task, model)
