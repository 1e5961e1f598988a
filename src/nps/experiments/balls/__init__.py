"""Section 4.2, bouncing balls: slots, dynamics and rules learned together from video.

SCOFF and SCOFF++ with attention between slots, and SCOFF++ with sequential or parallel NPS in its
place, predict the next frame of 4 balls; the test has 4, and then 6 to 8. Paper, "ARI" of two
seeds: SCOFF 0.28 and 0.15, SCOFF++ 0.84 and 0.26, parallel NPS 0.78 and 0.20, sequential NPS 0.85
and 0.36. It does not say whether the background counts; a fixed grid has 0.70 and 0.69 without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nps.experiments.balls.claims import CLAIMS
from nps.experiments.balls.config import Config
from nps.experiments.balls.headline import headline
from nps.experiments.balls.inspect import inspect_balls
from nps.experiments.balls.presets import PRESETS, QUICK
from nps.experiments.balls.report import Tested, write_report
from nps.experiments.balls.task import BallsTask
from nps.experiments.balls.workbench import BallsWorkbench
from nps.experiments.experiment import Experiment
from nps.experiments.headline import Headline, Metrics
from nps.inspect.report import Part, Report
from nps.inspect.workbench import Workbench


class Balls(Experiment[Config, BallsTask]):
    name = "balls"
    about = (
        "Bouncing balls: slots and rules learned from video, tested on more balls (section 4.2)."
    )
    subject = "bouncing balls"
    claims = CLAIMS
    config = Config
    presets = PRESETS
    quick = QUICK
    slow_on_cpu = True
    main_metrics = (
        *("fg_ari", "ari", "fg_miou", "video_fg_ari", "mse"),
        *("transfer_fg_ari", "transfer_ari", "transfer_fg_miou", "transfer_video_fg_ari"),
    )
    tested = Tested

    def make_task(self, config: Config, device: torch.device) -> BallsTask:
        return BallsTask(config, device)

    def report(self, folder: Path) -> Report:
        return write_report(folder, self)

    def headline(self, metrics: Metrics, config: Mapping[str, Any]) -> Headline:
        return headline(metrics, config)

    def inspect(self, task: BallsTask, model: Any, options: Any) -> Sequence[Part]:
        return inspect_balls(task, model)

    def workbench(self, task: BallsTask, model: Any) -> Workbench:
        return BallsWorkbench(task, model)
