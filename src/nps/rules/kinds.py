"""The rules that a config describes, and back: MLPs, or convolutions where it has a kernel size."""

from __future__ import annotations

from typing import Any

from nps.rules.actions import ConvRules, MLPRules
from nps.rules.config import RuleConfig
from nps.rules.projection import Factory
from nps.rules.ruleset import RuleSet


def make_rules(config: RuleConfig, slot_dim: int, factory: Factory) -> RuleSet:
    settings: dict[str, Any] = {
        "rule_dim": config.rule_dim,
        "hidden_dim": config.hidden_dim,
        "zero_start": config.zero_start,
    }
    if config.kernel_size is not None:
        settings["kernel_size"] = config.kernel_size
        return ConvRules(config.num_rules, slot_dim, **settings, **factory)
    settings["hidden_layers"] = config.hidden_layers
    return MLPRules(config.num_rules, slot_dim, **settings, **factory)


def sizes_of(rules: RuleSet) -> dict[str, Any]:
    """The settings that a given rule set decides."""
    sizes: dict[str, Any] = {"rule_dim": rules.rule_dim}
    if isinstance(rules, (MLPRules, ConvRules)):
        sizes["hidden_dim"] = rules.hidden_dim
        sizes["hidden_layers"] = rules.hidden_layers if isinstance(rules, MLPRules) else 1
        sizes["kernel_size"] = rules.kernel_size if isinstance(rules, ConvRules) else None
    return sizes
