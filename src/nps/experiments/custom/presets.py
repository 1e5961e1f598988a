"""The presets of world models of the user's own episodes."""

from __future__ import annotations

from nps.experiments.custom.config import Config
from nps.experiments.experiment import Preset

PRESETS = {
    "world-model": Preset("Your own episodes (--data): NPS, 4 rules, 2 stages.", Config()),
    "world-model-gnn": Preset("The same with C-SWM's GNN.", Config(transition="gnn")),
}

QUICK = {name: {"epochs": 10, "extractor": "small"} for name in PRESETS}
"""A few minutes on two cores."""

ADJUSTABLE = {
    "epochs": "Passes over the training set (default: 100, quick: 10).",
    "extractor": "The encoder of the images: on a CPU, small is by far the fastest "
    "(default: medium, quick: small).",
    "frames": "Frames stacked into an observation: one does not show velocity (default: 1).",
}
