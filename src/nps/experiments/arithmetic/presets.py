"""The presets of coordinate arithmetic: the paper's settings, its baseline, and ours."""

from __future__ import annotations

from dataclasses import replace

from nps.experiments.arithmetic.config import Config
from nps.experiments.experiment import Preset

ENERGY = Config(
    objective="free-energy",
    epochs=100,
    batch_size=256,
    learning_rate=3e-3,
    final_learning_rate=1e-5,
    dropout=0.0,
    context_query="mlp",
)
"""Ours for both readings: docs/notes/recipe.md."""

PRESETS = {
    "arithmetic": Preset("The paper's settings: 4 rules.", Config()),
    "arithmetic-baseline": Preset(
        "The paper's baseline: a routing MLP of 4 layers of 32 instead of slots × rules.",
        Config(model="routing"),
    ),
    "arithmetic-baseline-noisy": Preset(
        "The routing MLP with NPS's own Gumbel noise in its choices: a stronger baseline.",
        Config(model="routing", router_noise=True),
    ),
    "arithmetic-5-rules": Preset("One rule more than operations.", Config(rules=5)),
    "arithmetic-6-rules": Preset("Two rules more than operations.", Config(rules=6)),
    "arithmetic-other": Preset(
        "The other reading of the task: the context is always the other point.",
        Config(reading="other"),
    ),
    "arithmetic-sharp": Preset(
        "Ours: explore with noise and dropout, then settle without; context is the other point.",
        Config(
            reading="other",
            self_context=False,
            epochs=200,
            batch_size=256,
            learning_rate=3e-3,
            final_learning_rate=1e-5,
            restart_at=0.6,
            balance=0.3,
            settle_from=0.6,
        ),
    ),
    "arithmetic-sharp-any": Preset(
        "Ours in the harder reading: the context may be the point itself, so binding it needs "
        "the small network.",
        Config(
            learning_rate=1e-3,
            final_learning_rate=1e-5,
            dropout_until=0.7,
            balance=0.01,
            settle_from=0.8,
            context_query="mlp",
        ),
    ),
    "arithmetic-energy": Preset(
        "Ours: the free energy over every slot, rule and context; context is the other point.",
        replace(ENERGY, reading="other"),
    ),
    "arithmetic-energy-any": Preset(
        "The same in the harder reading: the context may be the point itself.",
        ENERGY,
    ),
}

QUICK = {
    "arithmetic": {},
    "arithmetic-baseline": {},
    "arithmetic-sharp": {"epochs": 100},
}
