"""What selection learns from: the outcome that was drawn, or the free energy of all outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from torch import Tensor

from nps.experiments.rule_settings import RuleSettings
from nps.rules import free_energy, regret
from nps.rules.check import require_choice, require_number
from nps.rules.config import MIN_TEMPERATURE
from nps.training import distributed

Objective = Literal["expected", "free-energy"]
EnergyUnit = Literal["loss", "regret"]
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
    """Temperature of the free energy, in units of the loss, or of the mean regret."""
    energy_unit: EnergyUnit = "loss"
    """Unit of the temperature: the loss; or the batch's mean regret, how much worse the scores
    choose than hindsight would. The regret needs no tuning where what is predicted is given
    (arithmetic, images); a world model makes its own slots, and shrinks it (docs/notes/recipe.md).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("objective", self.objective, get_args(Objective))
        require_choice("energy_unit", self.energy_unit, get_args(EnergyUnit))
        low = MIN_TEMPERATURE
        require_number("energy_temperature", self.energy_temperature, low, HIGHEST, open_top=False)

    def energy(self, log_prior: Tensor, losses: Tensor, *, dims: int = 3) -> Tensor:
        """The free energy of each choice of a batch (`nps.rules.free_energy`)."""
        temperature: Tensor | float = self.energy_temperature
        if self.energy_unit == "regret":
            unit = distributed.batch_mean(regret(log_prior, losses, dims=dims).mean())
            temperature = (temperature * unit).clamp(min=MIN_TEMPERATURE)
        return free_energy(log_prior, losses, temperature, dims=dims)
