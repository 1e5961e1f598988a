"""The presets of Sprites-MOT: OP3 and the tracker, each with rules or others between its slots."""

from __future__ import annotations

from typing import Any

from nps.experiments.experiment import Preset
from nps.experiments.sprites.config import Config

PNPS: dict[str, Any] = {"interaction": "pnps", "stages": 1}

TRACKER: dict[str, Any] = {
    "model": "tracker",
    "latent_dim": 32,
    "channels": 64,
    "first_refinements": 3,
    "refinements": 1,
    "zero_start": True,
    "batch_size": 64,
    "epochs": 50,
    "validate_every": 5,
    "learning_rate": 1e-3,
    "warmup_steps": 200,
    "clip_norm": 1.0,
}
"""15,000 steps. Slots of size 64, and widths, as on bouncing balls."""
BETWEEN: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("sequential NPS", {}),
    "-pnps": ("parallel NPS", PNPS),
    "-attention": ("attention", {"interaction": "attention"}),
    "-gnn": ("a GNN", {"interaction": "gnn"}),
    "-none": ("nothing", {"interaction": "none"}),
}
"""End of a preset's name -> what is between the tracker's slots."""
BOUNCING = {"": "", "-bounce": ", on sprites that bounce off one another"}


def trackers() -> dict[str, Preset]:
    return {
        f"sprites{bounce}-tracker{end}": Preset(
            f"The slot-attention tracker with {what} between slots{where}.",
            Config(**TRACKER, **changes, bounce=bool(bounce)),
        )
        for bounce, where in BOUNCING.items()
        for end, (what, changes) in BETWEEN.items()
    }


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
    **trackers(),
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

SMALL_TRACKER: dict[str, Any] = {
    "size": 32,
    "feature_stride": 2,
    "latent_dim": 16,
    "channels": 32,
    "batch_size": 16,
    "warmup_steps": 100,
    "train_videos": 1_600,
    "epochs": 3,
    "validate_every": 1,
    "validation_videos": 50,
    "test_videos": 100,
}
"""32 × 32 pixels and 600 steps, for a CPU: slots follow their sprites, unless two of them meet
(docs/notes/sprites.md)."""

QUICK = {
    "sprites": SMALL,
    "sprites-op3": SMALL,
    "sprites-tracker": SMALL_TRACKER,
    "sprites-tracker-none": SMALL_TRACKER,
}
