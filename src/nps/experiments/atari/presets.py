"""The presets of the world models of Atari games: the paper's setting, C-SWM, and variants."""

from __future__ import annotations

from dataclasses import replace

from nps.experiments.atari.config import Config
from nps.experiments.experiment import Preset

NPS, GNN = Config(), Config(transition="gnn")

PRESETS = {
    "atari-nps": Preset("The paper's setting: 1 rule, 1 stage.", NPS),
    "atari-nps-5": Preset("5 rules, as in a comment of the paper's source.", Config(rules=5)),
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

_CHANGES = {
    "epochs": 30,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "extractor": "small",  # the medium one takes ten times as long on a CPU
    "hidden_dim": 256,
}
QUICK = dict.fromkeys(
    ("atari-nps", "atari-gnn", "atari-nps-aligned", "atari-gnn-aligned"), _CHANGES
)
