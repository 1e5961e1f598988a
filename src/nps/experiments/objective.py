"""What selection learns from: the outcome that was drawn, or the free energy of all outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from nps.experiments.rule_settings import RuleSettings
from nps.rules.check import require_choice, require_number
from nps.rules.config import MIN_TEMPERATURE

Objective = Literal["expected", "free-energy"]
HIGHEST = 1e6
"""At this temperature the free energy is the expected loss."""


@dataclass(frozen=True)
class ObjectiveSettings(RuleSettings):
    """For experiments whose stage is short enough to try every choice (docs/notes/recipe.md)."""

    flags_title: ClassVar[str] = "Objective"

    objective: Objective = "expected"
    """What is minimised: the loss with drawn choices, as in the paper, or the free energy over
    every choice, which needs no noise, dropout or bonus on even use, and ignores them."""
    energy_temperature: float = 5e-4
    """Temperature of the free energy, in units of the loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("objective", self.objective, get_args(Objective))
        low = MIN_TEMPERATURE
        require_number("energy_temperature", self.energy_temperature, low, HIGHEST, open_top=False)
