"""Your own world: a world model of recorded episodes, `nps train world-model --data my.h5`.

The model of section 4.3 on whatever `nps.worlds.custom` reads: images of one square size, actions
that are numbers or vectors, episodes of any lengths.
"""

from __future__ import annotations

from typing import Any

from nps.experiments.custom.config import Config
from nps.experiments.custom.report import write_report
from nps.experiments.custom.task import CustomTask, elsewhere, require_episodes
from nps.experiments.experiment import Experiment, Look, NoOptions, Preset
from nps.experiments.world_models.look import action_tables, foreseen, ranking_table
from nps.experiments.world_models.report import MAIN
from nps.inspect.report import Block

PRESETS = {
    "world-model": Preset("Your own episodes (--data): NPS, 4 rules, 2 stages.", Config()),
    "world-model-gnn": Preset("The same with C-SWM's GNN.", Config(transition="gnn")),
}


def look(task: CustomTask, model: Any, options: NoOptions) -> list[Block]:
    """Which slots, rules and contexts serve which action; the ranking with its floor."""
    tables = action_tables(task, model, task.names)
    return [*tables, ranking_table(task.test(model), task.horizons), *foreseen(task, model)]


EXPERIMENT = Experiment(
    name="world-model",
    about="A world model of your own episodes: NPS beside a GNN.",
    config=Config,
    presets=PRESETS,
    make_task=CustomTask,
    write_report=write_report,
    look=Look(look),
    threads=None,
    main=MAIN,
    quick={name: {"epochs": 10} for name in PRESETS},
    prepare=require_episodes,
    data_field="episodes",
    elsewhere=elsewhere,
)
