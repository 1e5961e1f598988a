"""The rule settings that every experiment shares, as flags, and the `RuleConfig` they make.

A flag has its own default only where the paper gives an experiment its own value. Everything else
about a rule layer has one name and one default, those of `RuleConfig`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from nps.rules import RuleConfig
from nps.rules.check import require_int
from nps.training.config import TrainConfig

MOST_RULES = 100_000
"""Each has a name, which takes memory even before its parameters do."""


@dataclass(frozen=True)
class RuleSettings(TrainConfig):
    """Settings of training and of a rule layer. An experiment inherits these, and adds the fields
    of `RuleConfig` that it varies: `rule_config` finds them by their names."""

    flags_title: ClassVar[str] = "Rules"

    rules: int = 1
    """Number of rules N."""
    rule_dim: int = RuleConfig.rule_dim
    """Size of a rule's embedding."""
    key_dim: int = RuleConfig.key_dim
    """Size of queries and keys."""
    temperature: float = RuleConfig.temperature
    """Temperature of the straight-through softmax."""
    self_context: bool = RuleConfig.self_context
    """Whether a slot may be its own context."""

    flag_names: ClassVar[dict[str, str]] = {"num_rules": "rules"}
    """Field of `RuleConfig` -> field here, where the two differ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.flag_names.values():  # RuleConfig would call them by another name
            require_int(name, getattr(self, name), at_least=1)
        require_int("rules", self.rules, at_least=1, at_most=MOST_RULES)
        _ = self.rule_config  # it checks the rest

    @property
    def rule_config(self) -> RuleConfig:
        """The settings of the rule layer, whole; what the experiment does not vary is default."""
        names = [field.name for field in dataclasses.fields(RuleConfig)]
        flags = {name: self.flag_names.get(name, name) for name in names}
        return RuleConfig(
            **{name: getattr(self, flag) for name, flag in flags.items() if hasattr(self, flag)}
        )
