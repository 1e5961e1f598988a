"""The settings of the world models of blocks (experiments/blocks/)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from nps.experiments.world_models.config import WorldModelConfig
from nps.rules.check import require_choice, require_int
from nps.worlds.blocks import MODES
from nps.worlds.blocks.modes import OBJECTS


@dataclass(frozen=True)
class Config(WorldModelConfig):
    """World models of blocks. Defaults are the paper's and Ke et al.'s."""

    mode: str = "unobserved"
    """Appearance and weights of the blocks: unobserved (the paper's), observed, fixed-unobserved,
    fixed-palette, shapes, and more (docs/notes/weighted-blocks.md)."""
    objects: int = 5
    """Number of blocks, and of slots."""
    stay: bool = True
    """Whether blocks have an action to stay."""
    train_episodes: int = 1_000
    """Training episodes."""
    train_steps: int = 100
    """Steps per training episode."""
    validation_episodes: int = 500
    """Validation episodes, on which the best model is chosen."""
    test_episodes: int = 10_000
    """Test episodes."""
    test_steps: int = 10
    """Steps per test and validation episode."""
    data_seed: int = 0
    """Seed of the episodes; runs with different seeds share them."""
    start_from: str | None = None
    """Folder of finished runs (with seed-<s> in it) whose best models these start from, to train on
    with other negatives or in another mode."""

    def __post_init__(self) -> None:
        if self.objects not in OBJECTS:  # before it is checked as slots
            raise ValueError(f"objects: got {self.objects}, expected {OBJECTS[0]} to {OBJECTS[-1]}")
        super().__post_init__()
        for name in ("train_steps", "test_steps"):
            require_int(name, getattr(self, name), at_least=1)
        for name in ("train_episodes", "validation_episodes", "test_episodes"):
            require_int(name, getattr(self, name), at_least=2)
        require_choice("mode", self.mode, tuple(MODES))
        if self.start_from is not None and not self.start_from.strip():
            raise ValueError("start_from: got an empty path, expected a folder of runs")

    def trained(self) -> Self:
        return replace(self, start_from=None)

    @property
    def slots(self) -> int:
        return self.objects


BUILD = (
    "objects",
    "stay",
    "extractor",
    "width",
    "maps",
    "slot_dim",
    "hidden_dim",
    "transition",
    "action",
    "selection",
    "rules",
    "rule_dim",
    "key_dim",
    "rule_hidden_dim",
    "rule_layers",
    "stages",
    "self_context",
)
"""Fields that define the model; a run and the one it starts from must agree in them."""
