"""How a rule layer is built: its constructor, its settings, its parameters drawn anew.

`layer.py` is what it does once it is built.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self, TypedDict, Unpack

import torch
from torch import Tensor, nn

from nps.rules.bind import Bind
from nps.rules.check import require_int, require_type
from nps.rules.config import ContextGradient, Query, RuleConfig
from nps.rules.kinds import make_rules, sizes_of
from nps.rules.projection import Factory, reset_linear
from nps.rules.ruleset import RuleSet
from nps.rules.select import Select

LIVE = frozenset(
    {
        "stages",
        "temperature",
        "dropout",
        "context_dropout",
        "self_context",
        "context_gradient",
        "null_handicap",
        "most",
    }
)
"""Settings that are attributes of a layer and may be changed after its construction."""


class LayerOptions(TypedDict, total=False):
    """Keyword arguments of every rule layer, for the signatures of subclasses."""

    stages: int
    rule_dim: int
    key_dim: int
    hidden_dim: int
    hidden_layers: int
    kernel_size: int | None
    temperature: float
    selection_dim: int | None
    dropout: float
    context_dropout: float
    query: Query
    context_query: Query | None
    self_context: bool
    context_gradient: ContextGradient
    zero_start: bool
    rules: RuleSet | None
    device: torch.device | str | None
    dtype: torch.dtype | None


class ConfiguredLayer(nn.Module):
    """A module with rules, selection and binding, made from the fields of a `RuleConfig`."""

    unused: ClassVar[frozenset[str]] = frozenset({"null_handicap", "most"})
    """Fields of `RuleConfig` that the algorithm does not use and its constructor does not take."""

    def __init__(
        self,
        slot_dim: int,
        num_rules: int,
        *,
        stages: int = RuleConfig.stages,
        rule_dim: int = RuleConfig.rule_dim,
        key_dim: int = RuleConfig.key_dim,
        hidden_dim: int = RuleConfig.hidden_dim,
        hidden_layers: int = RuleConfig.hidden_layers,
        kernel_size: int | None = RuleConfig.kernel_size,
        temperature: float = RuleConfig.temperature,
        selection_dim: int | None = None,
        dropout: float = RuleConfig.dropout,
        context_dropout: float = RuleConfig.context_dropout,
        query: Query = RuleConfig.query,
        context_query: Query | None = RuleConfig.context_query,
        self_context: bool = RuleConfig.self_context,
        context_gradient: ContextGradient = RuleConfig.context_gradient,
        zero_start: bool = RuleConfig.zero_start,
        rules: RuleSet | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_int("slot_dim", slot_dim, at_least=1)
        self._config = RuleConfig(
            num_rules,
            stages=stages,
            rule_dim=rule_dim,
            key_dim=key_dim,
            hidden_dim=hidden_dim,
            hidden_layers=hidden_layers,
            kernel_size=kernel_size,
            temperature=temperature,
            dropout=dropout,
            context_dropout=context_dropout,
            query=query,
            context_query=context_query,
            self_context=self_context,
            context_gradient=context_gradient,
            zero_start=zero_start,
        )
        selection_dim = slot_dim if selection_dim is None else selection_dim
        require_int("selection_dim", selection_dim, at_least=1)
        factory: Factory = {"device": device, "dtype": dtype}
        if rules is None:
            rules = make_rules(self._config, slot_dim, factory)
        else:
            require_type("rules", rules, RuleSet, "a rule set such as ConvRules")
            rules.to(device=device, dtype=dtype)
            self._config = replace(self._config, **sizes_of(rules))
        if (len(rules), rules.slot_dim) != (num_rules, slot_dim):
            raise ValueError(
                f"rules: got {len(rules)} rules of slot_dim {rules.slot_dim}, "
                f"expected {num_rules} of {slot_dim}"
            )
        self.slot_dim = slot_dim
        self.selection_dim = selection_dim
        self.key_dim = key_dim
        self.stages = stages
        # A schedule may replace these two by tensors on the device, whose values are never read.
        self.temperature: float | Tensor = temperature
        self.dropout: float | Tensor = dropout
        self.context_dropout = context_dropout
        self.self_context = self_context
        self.context_gradient = context_gradient
        self.rules = rules
        context_query = query if context_query is None else context_query
        self._make_selection(key_dim, query, context_query, **factory)

    @classmethod
    def from_config(
        cls,
        config: RuleConfig,
        slot_dim: int,
        *,
        selection_dim: int | None = None,
        rules: RuleSet | None = None,
        **options: Any,
    ) -> Self:
        """Build a layer from its settings; `layer.config` gives them back.

        A layer of the same structure, which loads the state dict of the first::

            type(layer).from_config(
                layer.config, layer.slot_dim, selection_dim=layer.selection_dim
            )

        Args:
            config: the settings; those in `unused` are ignored.
            slot_dim, selection_dim, rules: as for the constructor. Only rule sets of your own need
                to be passed: the config describes `MLPRules` and `ConvRules`.
            options: further arguments of the constructor, such as `device`.
        """
        settings = {name: x for name, x in config.keywords().items() if name not in cls.unused}
        layer = cls(slot_dim, selection_dim=selection_dim, rules=rules, **settings, **options)
        layer._config = config if rules is None else replace(config, **sizes_of(rules))
        return layer

    @property
    def config(self) -> RuleConfig:
        """The settings as they are now: after `rules.add`, `num_rules` counts the new rules.

        Of a temperature or dropout that is scheduled (a tensor), the constructor's value.
        """
        now: dict[str, Any] = {"num_rules": len(self.rules)}
        for name in LIVE - self.unused:
            value = getattr(self, name, None)
            if value is not None and not isinstance(value, Tensor):
                now[name] = value
        return replace(self._config, **now)

    def _make_selection(
        self, key_dim: int, query: Query, context_query: Query, **factory: Unpack[Factory]
    ) -> None:
        """Build the modules that choose rules and contexts."""
        self.select = Select(self.selection_dim, self.rules.rule_dim, key_dim, query, **factory)
        self.bind = Bind(self.selection_dim, key_dim, context_query, **factory)

    def reset_parameters(self) -> None:
        """Draw all parameters anew; after the same seed they are those of the constructor."""
        self.rules.reset_actions()
        self._reset_selection()

    def _reset_selection(self) -> None:
        """Draw what `_make_selection` has built, in the same order."""
        reset_linear(self.select, self.bind)

    def extra_repr(self) -> str:
        return f"{self.slot_dim}, {len(self.rules)}, stages={self.stages}"
