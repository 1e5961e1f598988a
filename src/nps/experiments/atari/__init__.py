"""Section 4.3 and appendix "Atari": world models of five games, NPS against C-SWM's GNN.

What comes from where: the games, 1,000 and 100 episodes and the rules' embeddings of 32 are the
paper's; "the same setup as the physics environment" means one rule and one stage. The paragraph on
five rules is commented out in its source (`atari-nps-5`). Preparation, medium extractor, 3 slots of
4 numbers, copied actions, batches of 1,024 and 200 epochs are C-SWM's, whose model the paper takes
over; its own encoder (four convolutions, slot attention) is not in these presets. Ours: statistics
of batch normalisation that belong to the weights (C-SWM's lag behind: `-running`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nps.experiments.atari.config import Config
from nps.experiments.atari.data import prepare
from nps.experiments.atari.report import write_report
from nps.experiments.atari.task import AtariTask
from nps.experiments.experiment import Experiment, Look, NoOptions, Preset
from nps.experiments.world_models.look import action_tables, foreseen, ranking_table
from nps.experiments.world_models.report import MAIN
from nps.inspect.report import Block
from nps.worlds.atari_games import GAMES

NPS, GNN = Config(), Config(transition="gnn")

PRESETS = {
    "atari-nps": Preset("The paper's setting: 1 rule, 1 stage.", NPS),
    "atari-nps-5": Preset("5 rules, which the paper's source has in a comment.", Config(rules=5)),
    "atari-gnn": Preset("C-SWM: the same with its GNN.", GNN),
    "atari-nps-aligned": Preset(
        "NPS, with negatives from the same time of other episodes.",
        replace(NPS, negatives="time-aligned"),
    ),
    "atari-gnn-aligned": Preset(
        "The GNN, with negatives from the same time of other episodes.",
        replace(GNN, negatives="time-aligned"),
    ),
    "atari-parallel-aligned": Preset(
        "Parallel NPS, with negatives from the same time of other episodes.",
        replace(NPS, transition="pnps", negatives="time-aligned"),
    ),
    "atari-nps-running": Preset(
        "NPS, evaluated with running statistics of batch normalisation, as C-SWM does.",
        replace(NPS, statistics="running"),
    ),
    "atari-gnn-running": Preset(
        "The GNN, evaluated with running statistics of batch normalisation, as C-SWM does.",
        replace(GNN, statistics="running"),
    ),
}

QUICK = {
    "epochs": 30,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "extractor": "small",  # the medium one takes ten times as long on a CPU
    "hidden_dim": 256,
}


def look(task: AtariTask, model: Any, options: NoOptions) -> list[Block]:
    """Which slots, rules and contexts serve which action; the ranking with its floors."""
    names = GAMES[task.config.game].actions
    tables = action_tables(task, model, names)
    return [*tables, ranking_table(task.test(model), task.horizons), *foreseen(task, model)]


EXPERIMENT = Experiment(
    name="atari",
    about="World models of Atari games: NPS against a GNN (section 4.3).",
    config=Config,
    presets=PRESETS,
    make_task=AtariTask,
    write_report=write_report,
    look=Look(look),
    threads=None,
    main=MAIN,
    quick=dict.fromkeys(
        ("atari-nps", "atari-gnn", "atari-nps-aligned", "atari-gnn-aligned"), QUICK
    ),
    heavy=True,
    flags={"game": "pong, space_invaders, freeway, breakout or qbert."},
    prepare=prepare,
)
