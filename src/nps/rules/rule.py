"""A view of one rule of a set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

    from nps.rules.ruleset import RuleSet


class Rule:
    """A view of one rule: it holds no values and follows its rule when others are removed.

    `rules["push"]`, `rules[2]` and iteration over a rule set give these.
    """

    def __init__(self, rules: RuleSet, number: int) -> None:
        self._rules = rules
        self._number = number

    @property
    def index(self) -> int:
        """Its place in the rule set, as in a trace."""
        numbers = self._rules._switches.numbers
        if self._number not in numbers:
            raise ValueError("rule: it was removed from its rule set")
        return numbers.index(self._number)

    def index_in(self, rules: RuleSet) -> int:
        """Its place in a rule set, which must be its own."""
        if rules is not self._rules:
            raise ValueError(f"rule: got {self!r} of another rule set, expected one of this one")
        return self.index

    @property
    def name(self) -> str:
        """Its name; assign to rename the rule."""
        return self._rules.names[self.index]

    @name.setter
    def name(self, name: str) -> None:
        self._rules.names[self.index] = name

    @property
    def embedding(self) -> Float[Tensor, "rule"]:
        """Its condition R_i, from which the layer computes its key."""
        return self._rules.tensor("embedding")[self.index]

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Its condition and action by name, as they act: views of the stacked parameters."""
        i = self.index
        return {name: self._rules.tensor(name)[i] for name, _ in self._rules._per_rule()}

    @property
    def frozen(self) -> bool:
        """Whether it is held at its values."""
        return self.index in self._rules.frozen

    @property
    def enabled(self) -> bool:
        """Whether it may fire here: False inside `disabled`, and after `switch_off`."""
        allowed = self._rules.allowed()
        return allowed is None or bool(allowed[self.index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self._number == other._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __repr__(self) -> str:
        state = ", frozen" if self.frozen else ""
        state += ", off" if self.index in self._rules.off else ""
        return f"Rule({self.index}, {self.name!r}{state})"
