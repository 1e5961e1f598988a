"""The presets of falling towers: the paper's models, and nothing between the shapes."""

from __future__ import annotations

from typing import Any

from nps.experiments.experiment import Preset
from nps.experiments.stacks.config import Config

PRESETS = {
    "stacks": Preset("RPIN with parallel NPS: two rules and the null rule.", Config()),
    "stacks-snps": Preset(
        "RPIN with sequential NPS: four rules, three stages.",
        Config(interaction="snps", rules=4, stages=3),
    ),
    "stacks-rpin": Preset("RPIN, with its own interaction network.", Config(interaction="cin")),
    "stacks-none": Preset("RPIN with nothing between the shapes.", Config(interaction="none")),
}

SMALL: dict[str, Any] = {
    "pixels": 64,
    "width": 32,
    "rule_hidden_dim": 32,
    "epochs": 40,
    "learning_rate": 1e-3,
    "warmup_steps": 50,
    "validate_every": 10,
    "episodes": 400,
    "validation_episodes": 40,
    "test_episodes": 60,
    "samples": 10,
    "divergence_weight": 3e-3,
}
"""Small pictures and 800 steps, for a CPU. With RPIN's small weight on its divergence, the latent
learns the few towers by heart, and says nothing about others."""

QUICK = {"stacks": SMALL, "stacks-rpin": SMALL}
