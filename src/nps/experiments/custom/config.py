"""The settings of world models of the user's own episodes (experiments/custom/)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from nps.experiments.world_models.config import Statistics, WorldModelConfig
from nps.models.contrastive import Negatives
from nps.rules.check import require_choice, require_int, require_number
from nps.worlds.custom import Channels

LEAST_HELD_OUT = 0.001
"""One of a thousand episodes. The most is a third: then all three sets have the same size."""
MOST_FRAMES = 16
"""Most stacked frames; each makes every image larger."""


@dataclass(frozen=True)
class Config(WorldModelConfig):
    """A world model of your own episodes. These settings are not the paper's."""

    episodes: str = ""
    """File or folder of the episodes; set by --data."""
    channels: Channels | None = None
    """Position of the channels in images, first or last; default: inferred from the shape."""
    frames: int = 1
    """Frames stacked into an observation, newest first: a single frame does not show velocity. At
    the start of an episode its first frame is repeated."""
    batch_size: int = 128
    """Transitions per step."""
    slots: int = 5
    """Number of slots M."""
    slot_dim: int = 16
    """Size of a slot."""
    hidden_dim: int = 128
    """Width of the encoder, and of transitions without rules."""
    rules: int = 4
    stages: int = 2
    negatives: Negatives = "episode"
    """Source of negatives: the shuffled batch; for half of it, other times of the same episode; or
    the same time of other episodes."""
    statistics: Statistics = "settled"
    """Batch normalisation statistics in evaluation: running means (C-SWM), or the statistics of
    training images under the parameters that are evaluated."""
    held_out: float = 0.1
    """Fraction of the episodes for validation, and again for testing: one of every round(1 /
    fraction) each, at least one; at most a third."""
    test_steps: int = 10
    """Steps of the roll-outs that are ranked; 5 or 1 if episodes are too short."""
    data_seed: int = 0
    """Seed that selects the held-out episodes; runs with different seeds share them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.channels is not None:
            require_choice("channels", self.channels, get_args(Channels))
        require_number("frames", self.frames, 1, MOST_FRAMES, open_top=False)
        require_int("frames", self.frames)
        require_number("held_out", self.held_out, LEAST_HELD_OUT, 1 / 3, open_top=False)
        require_int("test_steps", self.test_steps, at_least=1)
