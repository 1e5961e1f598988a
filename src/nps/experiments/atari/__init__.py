"""Section 4.3 and appendix "Atari": world models of five games, NPS against C-SWM's GNN.

Sources of the settings. The paper: the games, 1,000 and 100 episodes, rule embeddings of size 32;
"the same setup as the physics environment" means one rule and one stage. Its paragraph on five
rules is commented out in the source (`atari-nps-5`). C-SWM, whose model the paper takes over:
preprocessing, medium extractor, 3 slots of size 4, actions copied to every slot, batches of 1,024,
200 epochs; `atari-cswm-*` are its program to the letter. The physics environment has another
encoder and 5 slots of 64: `atari-slots-*`, and with C-SWM's extractor `atari-5x64-*`.
Ours: batch normalisation statistics that match the evaluated parameters (C-SWM's running ones lag
behind: `-running`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nps.experiments.atari.claims import CLAIMS
from nps.experiments.atari.config import Config
from nps.experiments.atari.data import prepare
from nps.experiments.atari.games import read, read_games
from nps.experiments.atari.presets import PRESETS, QUICK
from nps.experiments.atari.report import write_report
from nps.experiments.atari.task import AtariTask
from nps.experiments.atari.workbench import AtariWorkbench
from nps.experiments.experiment import Experiment
from nps.experiments.headline import Headline, Metrics
from nps.experiments.results import Result
from nps.experiments.world_models.headline import NOTHING_MOVES, ranking_headline
from nps.experiments.world_models.inspect import inspect_world_model
from nps.experiments.world_models.report import MAIN, Tested
from nps.inspect.report import Part, Report
from nps.inspect.workbench import Workbench
from nps.worlds.atari_games import GAMES

FLAGS = {"game": "pong, space_invaders, freeway, breakout or qbert."}


FLOORS = {**NOTHING_MOVES, "copy_": "copying the input"}


class Atari(Experiment[Config, AtariTask]):
    name = "atari"
    about = "World models of Atari games: NPS against a GNN (section 4.3)."
    subject = "five Atari games"
    claims = CLAIMS
    config = Config
    presets = PRESETS
    quick = QUICK
    slow_on_cpu = True
    flags = FLAGS
    main_metrics = MAIN
    tested = Tested

    def make_task(self, config: Config, device: torch.device) -> AtariTask:
        return AtariTask(config, device)

    def report(self, folder: Path) -> Report:
        return write_report(folder, self)

    def published(self, folder: Path) -> list[Result]:
        games = read_games(folder)
        return [run for presets in games.values() for runs in presets.values() for run in runs]

    def left_out(self, folder: Path) -> Mapping[str, str]:
        return {str(game): why for game, why in read(folder).left_out.items()}

    def prepare(self, config: Config) -> None:
        prepare(config)

    def headline(self, metrics: Metrics, config: Mapping[str, Any]) -> Headline:
        return ranking_headline(metrics, FLOORS)

    def inspect(self, task: AtariTask, model: Any, options: Any) -> Sequence[Part]:
        return inspect_world_model(task, model, GAMES[task.config.game].actions)

    def workbench(self, task: AtariTask, model: Any) -> Workbench:
        return AtariWorkbench(task, model)
