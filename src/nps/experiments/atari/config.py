"""The settings of the world models of Atari games (experiments/atari/)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from nps.experiments.world_models.config import Statistics, WorldModelConfig
from nps.rules.check import require_choice, require_int
from nps.worlds.atari_games import GAMES, Name, Settings


@dataclass(frozen=True)
class Config(WorldModelConfig):
    """World models of one game. Encoder and schedule are C-SWM's, the rules are the paper's."""

    game: Name = "pong"
    """Pong, Space Invaders, Freeway, Breakout or Q*bert."""
    epochs: int = 200
    """Passes over the training set (C-SWM)."""
    batch_size: int = 1024
    """Transitions per step (C-SWM)."""
    slots: int = 3
    """Number of slots M (C-SWM's program)."""
    slot_dim: int = 4
    """Size of a slot (C-SWM)."""
    rule_dim: int = 32
    """Size of a rule's embedding (appendix, "Atari")."""
    statistics: Statistics = "settled"
    """Batch normalisation statistics in evaluation: running means (C-SWM), or the statistics of
    training images under the parameters that are evaluated (ours)."""
    train_episodes: int = Settings.train
    """Training episodes in the file, including those for validation."""
    validation_episodes: int = 100
    """Of these, the last ones held out; the best model is the one with the lowest loss on them.
    With 0, as in C-SWM, all are trained on, and the lowest training loss chooses."""
    test_episodes: int = Settings.test
    """Test episodes in the file."""
    data_seed: int = Settings.seed
    """Seed of the file; runs with different seeds share it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("game", self.game, get_args(Name))
        require_int("test_episodes", self.test_episodes, at_least=2)
        if self.validation_episodes == 1:
            raise ValueError("validation_episodes: got 1, expected 0, or at least 2 to compare")
        require_int("validation_episodes", self.validation_episodes, at_least=0)
        if self.train_episodes < self.validation_episodes + 2:
            raise ValueError(
                f"train_episodes: got {self.train_episodes}, expected at least 2 more than the "
                f"{self.validation_episodes} validation_episodes"
            )
        self.settings()
        count = len(GAMES[self.game].actions)
        if self.action != "copied" and count % self.slots:
            raise ValueError(
                f"slots: got {self.slots}, expected a divisor of {self.game}'s {count} actions "
                f"(--slots) where these are {self.action} (--action)"
            )

    def settings(self) -> Settings:
        """The settings of the game's file."""
        return Settings(self.train_episodes, self.test_episodes, self.data_seed)
