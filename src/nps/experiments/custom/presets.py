"""The presets of world models of the user's own episodes."""

from __future__ import annotations

from nps.experiments.custom.config import Config
from nps.experiments.experiment import Preset

PRESETS = {
    "world-model": Preset("Your own episodes (--data): NPS, 4 rules, 2 stages.", Config()),
    "world-model-gnn": Preset("The same with C-SWM's GNN.", Config(transition="gnn")),
}

QUICK = {name: {"epochs": 10} for name in PRESETS}
