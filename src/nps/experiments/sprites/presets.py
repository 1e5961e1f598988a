"""The presets of Sprites-MOT: OP3, rules in place of its interaction, and nothing between slots."""

from __future__ import annotations

from typing import Any

from nps.experiments.experiment import Preset
from nps.experiments.sprites.config import Config

PNPS: dict[str, Any] = {"interaction": "pnps", "stages": 1}

PRESETS = {
    "sprites": Preset("OP3 with sequential NPS: ten rules, three stages.", Config()),
    "sprites-op3": Preset("OP3, with effects between all pairs.", Config(interaction="op3")),
    "sprites-pnps": Preset("OP3 with parallel NPS.", Config(**PNPS)),
    "sprites-none": Preset("OP3 with nothing between slots.", Config(interaction="none")),
    "sprites-bounce": Preset(
        "OP3 with sequential NPS, on sprites that bounce off one another.", Config(bounce=True)
    ),
    "sprites-bounce-op3": Preset(
        "OP3 on sprites that bounce off one another.", Config(interaction="op3", bounce=True)
    ),
    "sprites-bounce-none": Preset(
        "OP3 with nothing between slots, on sprites that bounce off one another.",
        Config(interaction="none", bounce=True),
    ),
}

SMALL: dict[str, Any] = {
    "size": 32,
    "slots": 4,
    "latent_dim": 16,
    "channels": 8,
    "memory_dim": 32,
    "first_refinements": 3,
    "refinements": 1,
    "frames": 3,
    "video_frames": 6,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "warmup_steps": 50,
    "train_videos": 400,
    "epochs": 2,
    "validate_every": 2,
    "validation_videos": 20,
    "test_videos": 50,
}
"""32 × 32 pixels and 200 steps, for a CPU: enough to see that it runs, and far too few for slots to
separate."""

QUICK = {"sprites": SMALL, "sprites-op3": SMALL}
