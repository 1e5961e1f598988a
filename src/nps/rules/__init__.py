"""The paper: rules, and the two algorithms that choose and apply them. Needs only torch."""

from nps.rules.actions import ConvRules, MLPRules
from nps.rules.adaptive import AdaptiveNPS, worth_loss
from nps.rules.choice import gumbel, hard_choice
from nps.rules.config import RuleConfig
from nps.rules.energy import free_energy, regret
from nps.rules.gated import GatedNPS, GatedParallelNPS
from nps.rules.layer import RuleLayer
from nps.rules.parallel import ParallelNPS
from nps.rules.rule import Rule
from nps.rules.ruleset import RuleSet
from nps.rules.sequential import SequentialNPS
from nps.rules.trace import Trace
from nps.rules.usage import Usage

__all__ = [
    "AdaptiveNPS",
    "ConvRules",
    "GatedNPS",
    "GatedParallelNPS",
    "MLPRules",
    "ParallelNPS",
    "Rule",
    "RuleConfig",
    "RuleLayer",
    "RuleSet",
    "SequentialNPS",
    "Trace",
    "Usage",
    "free_energy",
    "gumbel",
    "hard_choice",
    "regret",
    "worth_loss",
]
