"""The presets of world models of the user's own episodes."""

from __future__ import annotations

from nps.experiments.custom.config import Config
from nps.experiments.experiment import Preset
from nps.rules.config import MAX_HANDICAP

RECIPE = Config(
    transition="pnps",
    stages=1,
    selection="mlp",
    self_context=False,
    context_gradient="update",
    context_dropout=0.35,
    null_handicap=MAX_HANDICAP,
    rule_layers=2,
)
"""The rule layer of `nps.recipes.LEARNED`."""

PRESETS = {
    "world-model": Preset("Your own episodes (--data): NPS, 4 rules, 2 stages.", Config()),
    "world-model-recipe": Preset(
        "The same with the recipe for slots that are learned: parallel NPS, no null rule.", RECIPE
    ),
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
