"""The presets of bouncing balls: the paper's models and controls.

All have a background component, and interactions that begin after 30 % of training and start by
changing nothing, unless they say otherwise; both are ours.
"""

from __future__ import annotations

from typing import Any

from nps.experiments.balls.config import Config
from nps.experiments.experiment import Preset

PRESETS = {
    "balls": Preset("SCOFF++ with sequential NPS.", Config()),
    "balls-best": Preset(
        "SCOFF++ with one stage of sequential NPS, whose contexts are other slots.",
        Config(stages=1, self_context=False, context_gradient="update"),
    ),
    "balls-as-published": Preset(
        "SCOFF++ with sequential NPS as published: rules act from the first step on, at random.",
        Config(zero_start=False, interact_from=0.0),
    ),
    "balls-pnps": Preset(
        "SCOFF++ with parallel NPS.",
        Config(interaction="pnps", stages=1),
    ),
    "balls-attention": Preset(
        "SCOFF++, with attention between slots.", Config(interaction="attention")
    ),
    "balls-scoff": Preset(
        "SCOFF, with attention between object files and 4 schemata.",
        Config(model="scoff", interaction="attention"),
    ),
    "balls-gnn": Preset("SCOFF++ with a GNN between slots.", Config(interaction="gnn")),
    "balls-none": Preset("SCOFF++ with nothing between slots.", Config(interaction="none")),
}

SMALL: dict[str, Any] = {
    "size": 32,
    "width": 32,
    "frames": 4,
    "first_frames": 3,
    "scene_frames": 10,
    "batch_size": 16,
    "warmup_steps": 100,
    "train_scenes": 2_000,
    "epochs": 16,
    "validate_every": 1,
    "validation_scenes": 32,
    "test_scenes": 50,
}
"""32 × 32 pixels and 4,000 steps, for a CPU: slots have not been seen to separate in them
(docs/notes/balls.md)."""

QUICK = {"balls": SMALL, "balls-none": SMALL}
