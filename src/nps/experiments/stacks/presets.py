"""The presets of falling towers: the paper's models with what makes them learn, nothing between the
shapes, and two models as published."""

from __future__ import annotations

from typing import Any

from nps.experiments.experiment import Preset
from nps.experiments.stacks.config import Config

OURS: dict[str, Any] = {
    "residual": True,
    "divergence_start": 3e-3,
    "views": 4,
}
"""Against learning towers by heart (docs/notes/stacks.md); the same for all that are compared."""

RULES: dict[str, Any] = OURS | {"null_handicap": 3.0}
"""With a handicap, so that the null rule does not take every shape before rules are of use."""

NUMBERS = (1, 2, 4, 6)
"""Of rules, as the paper compares them."""
SHORTER: dict[str, Any] = {"epochs": 152, "validate_every": 19}
"""10,032 steps, a fifth."""

PRESETS = {
    "stacks": Preset("RPIN with parallel NPS: two rules and the null rule.", Config(**RULES)),
    "stacks-snps": Preset(
        "RPIN with sequential NPS: four rules, three stages.",
        Config(interaction="snps", rules=4, stages=3, **OURS),
    ),
    "stacks-rpin": Preset(
        "RPIN, with its own interaction network.", Config(interaction="cin", **OURS)
    ),
    "stacks-none": Preset(
        "RPIN with nothing between the shapes.", Config(interaction="none", **OURS)
    ),
    **{
        f"stacks-n{n}": Preset(
            f"RPIN with parallel NPS, {n} rule{'s' * (n > 1)} and the null rule; shorter training.",
            Config(**RULES | SHORTER | {"rules": n}),
        )
        for n in NUMBERS
    },
    **{
        f"stacks-snps-n{n}": Preset(
            f"RPIN with sequential NPS, {n} rule{'s' * (n > 1)}; shorter training.",
            Config(interaction="snps", stages=3, **OURS | SHORTER | {"rules": n}),
        )
        for n in NUMBERS
    },
    "stacks-as-published": Preset("Parallel NPS in RPIN as published.", Config()),
    "stacks-rpin-as-published": Preset("RPIN as published.", Config(interaction="cin")),
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
