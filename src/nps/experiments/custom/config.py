"""The settings of world models of the user's own episodes (experiments/custom/)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from nps.experiments.world_models.config import Statistics, WorldModelConfig
from nps.models.contrastive import Negatives
from nps.rules.check import require_choice, require_int, require_number
from nps.worlds.custom import Channels

LEAST_HELD_OUT = 0.001
"""One of a thousand episodes. The most is a third: all three sets then have as many."""


@dataclass(frozen=True)
class Config(WorldModelConfig):
    """A world model of your own episodes. Nothing of it is the paper's."""

    episodes: str = ""
    """File or folder of the episodes, which --data sets; eval and inspect find it by this."""
    channels: Channels | None = None
    """Where images have their channels, first or last; by default it is told from their shape."""
    batch_size: int = 128
    """Transitions a step."""
    slots: int = 5
    """Number of slots M."""
    slot_dim: int = 16
    """Size of a slot."""
    hidden_dim: int = 128
    """Width of the encoder and of transitions that are not rules."""
    rules: int = 4
    """Number of rules N."""
    stages: int = 2
    """Rules applied one after the other in a step of the world."""
    negatives: Negatives = "episode"
    """Shuffled batch; half of it other times of the same episode; or other episodes' same time."""
    statistics: Statistics = "settled"
    """What batch normalisation takes in evaluation: the running mean of batches (C-SWM), or what
    training images have with the very weights that are validated."""
    held_out: float = 0.1
    """Share of the episodes that picks the best model, and as many again to test: one of every
    round(1 / share), from a third down; one at least."""
    test_steps: int = 10
    """Steps of the roll-outs that are ranked; 5 or 1 where episodes are too short."""
    data_seed: int = 0
    """Which episodes are held out; runs with other seeds share them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.channels is not None:
            require_choice("channels", self.channels, get_args(Channels))
        require_number("held_out", self.held_out, LEAST_HELD_OUT, 1 / 3, open_top=False)
        require_int("test_steps", self.test_steps, at_least=1)
