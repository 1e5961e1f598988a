"""The presets of bouncing balls: the paper's models and controls.

All have a background component, slots with a place, lengths in radii, and interactions that start
by changing nothing, unless they say otherwise; these are ours.
"""

from __future__ import annotations

from typing import Any

from nps.experiments.balls.config import Config
from nps.experiments.experiment import Preset
from nps.rules.config import MAX_HANDICAP

PRESETS = {
    "balls": Preset("SCOFF++ with sequential NPS.", Config()),
    "balls-best": Preset(
        "SCOFF++ with parallel NPS that says who bumped whom.",
        Config(
            interaction="pnps",
            rules=1,
            stages=1,
            hidden_layers=2,
            select_by="motion",
            query="mlp",
            context_query="mlp",
            self_context=False,
            context_gradient="update",
            null_handicap=MAX_HANDICAP,
            settle_from=0.5,
        ),
    ),
    "balls-as-published": Preset(
        "SCOFF++ with sequential NPS as published: no places or background, a random start.",
        Config(zero_start=False, places=False, background=False, disagreement=0.0),
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
        # With a price on area, one slot drew all balls before the slots had come apart.
        Config(model="scoff", interaction="attention", area=0.0),
    ),
    "balls-gnn": Preset("SCOFF++ with a GNN between slots.", Config(interaction="gnn")),
    "balls-none": Preset("SCOFF++ with nothing between slots.", Config(interaction="none")),
}

SMALL: dict[str, Any] = {
    "size": 32,
    "feature_stride": 2,
    "width": 32,
    "frames": 4,
    "scene_frames": 10,
    "batch_size": 16,
    "warmup_steps": 100,
    "train_scenes": 1_000,
    "epochs": 10,
    "validate_every": 1,
    "validation_scenes": 32,
    "test_scenes": 50,
}
"""32 × 32 pixels and 1,250 steps, for a CPU: slots separate within the first 125 of them
(docs/notes/balls.md)."""

QUICK = {"balls-best": SMALL, "balls-none": SMALL}
