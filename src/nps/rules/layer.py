"""What both rule layers share: the constructor, the call and the steps of a stage.

A call checks its input, draws its noise (noise.py) and runs K stages; `sequential.py` and
`parallel.py` say what a stage is. To change an algorithm, subclass its layer and override a step:

- `select_rule(features, allowed, noise)`: step 2, primary slots and their rules;
- `bind_context(features, primary, allowed, noise)`: step 3, their contexts;
- `apply_rule(slots, primary, rule, context)`: step 4, the new slots;
- or the whole `stage(slots, features, allowed, noise)`.

A layer with its own step never takes the accelerated form of the stock layers (`fast.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, Unpack, overload

import torch
from torch import Tensor, nn

from nps.rules import fast
from nps.rules.allowed import Allowed
from nps.rules.bind import Bind
from nps.rules.check import require_dtype, require_finite, require_int, require_slots, require_type
from nps.rules.config import ContextGradient, Query, RuleConfig
from nps.rules.kinds import make_rules, sizes_of
from nps.rules.noise import Noise, Shares, StageNoise
from nps.rules.projection import Factory, exact, reset_linear
from nps.rules.ruleset import RuleSet
from nps.rules.select import Select
from nps.rules.slots import pick, unsqueeze_right
from nps.rules.trace import Choices, Trace

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

Selection = Tensor | Callable[[Tensor], Tensor]
LIVE = frozenset(
    {
        "stages",
        "temperature",
        "dropout",
        "context_dropout",
        "self_context",
        "context_gradient",
        "null_handicap",
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


class RuleLayer(nn.Module, ABC):
    """Base of `SequentialNPS` and `ParallelNPS`, whose docstrings explain the arguments."""

    unused: ClassVar[frozenset[str]] = frozenset({"null_handicap"})
    """Fields of `RuleConfig` that the algorithm does not use and its constructor does not take."""
    without_context = False
    """In training, rules see zeros in place of their context (an optional first phase)."""

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

    # -- the call -----------------------------------------------------------------------------

    if TYPE_CHECKING:

        @overload
        def __call__(
            self,
            slots: Tensor,
            *,
            selection: Selection | None = None,
            slot_mask: Tensor | None = None,
            noise: Noise | None = None,
            return_trace: Literal[False] = False,
        ) -> Tensor: ...

        @overload
        def __call__(
            self,
            slots: Tensor,
            *,
            selection: Selection | None = None,
            slot_mask: Tensor | None = None,
            noise: Noise | None = None,
            return_trace: Literal[True],
        ) -> tuple[Tensor, Trace]: ...

        @overload
        def __call__(
            self,
            slots: Tensor,
            *,
            selection: Selection | None = None,
            slot_mask: Tensor | None = None,
            noise: Noise | None = None,
            return_trace: bool,
        ) -> Tensor | tuple[Tensor, Trace]: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def forward(
        self,
        slots: Float[Tensor, "*batch M *slot"],
        *,
        selection: Selection | None = None,
        slot_mask: Bool[Tensor, "*batch M"] | None = None,
        noise: Noise | None = None,
        return_trace: bool = False,
    ) -> Tensor | tuple[Tensor, Trace]:
        """Apply K stages of rules.

        Args:
            slots: (..., M, D), any number of leading dimensions; (..., M, C, H, W) for
                convolutional rules.
            selection: features that selection and binding see in place of the slots,
                (..., M, selection_dim): a tensor, the same at every stage, or a function of the
                current slots. The actions never see them.
            slot_mask: (..., M); False slots are never chosen, neither primary nor context, and
                are returned unchanged, whatever they hold.
            noise: in training, a `torch.Generator`, or uniform numbers of shape
                `noise_shape(...)`; by default drawn from torch's global generator. Evaluation
                is the deterministic argmax and draws none.
            return_trace: also return what fired where.

        Returns:
            The new slots, or (slots, Trace).
        """
        events = self.rules.event_dims
        require_slots(slots, slot_mask, self.slot_dim, events)
        require_dtype("slots", slots, self.rules.embedding.dtype)
        given = slots
        if slot_mask is not None:
            slots = torch.where(unsqueeze_right(slot_mask, events), slots, 0.0)
        require_finite("slots", slots)
        batch, m = slots.shape[: -1 - events], slots.shape[-1 - events]
        uniform = self._shares(m).uniform(noise, batch, slots.device) if self.training else None
        slots, traces = self._run(slots, selection, slot_mask, uniform, return_trace)
        if slot_mask is not None:
            slots = torch.where(unsqueeze_right(slot_mask, events), slots, given)
        return (slots, Trace.of_stages(traces, len(batch))) if return_trace else slots

    def _run(
        self,
        slots: Tensor,
        selection: Selection | None,
        slot_mask: Tensor | None,
        uniform: Tensor | None,
        traced: bool,
    ) -> tuple[Tensor, list[Trace]]:
        """The slots after all stages and, if `traced`, a trace of each."""
        allowed = Allowed(slot_mask, self.rules.allowed())
        features: Selection | None = selection
        if callable(selection):
            features = lambda slots: self._features(slots, selection, slot_mask)  # noqa: E731
        elif selection is not None or self.selection_dim != self.slot_dim:
            features = self._features(slots, selection, slot_mask)
        accelerated = fast.run(self, slots, features, allowed, uniform, traced)
        if accelerated is not None:
            return accelerated
        traces: list[Trace] = []
        shares = self._shares(slots.shape[-1 - self.rules.event_dims])
        for noise in shares.of_stages(uniform):
            seen = self._features(slots, selection, slot_mask)
            slots, choices = self.stage(slots, seen, allowed, noise)
            if traced:
                traces.append(choices.trace())
        return slots, traces

    # -- the steps ----------------------------------------------------------------------------

    @abstractmethod
    def stage(
        self,
        slots: Float[Tensor, "*batch M *slot"],
        features: Float[Tensor, "*batch M F"],
        allowed: Allowed,
        noise: StageNoise,
    ) -> tuple[Float[Tensor, "*batch M *slot"], Choices]:
        """One stage: the new slots and what was chosen. Each algorithm is one of these."""

    def _update(
        self,
        primary: Float[Tensor, "*batch P *slot"],
        context: Float[Tensor, "*batch P M"],
        slots: Float[Tensor, "*batch M *slot"],
        rule: Float[Tensor, "*batch P N"],
    ) -> Float[Tensor, "*batch P *slot"]:
        """The rules' updates of the primary slots in the chosen contexts."""
        events = self.rules.event_dims
        if self.without_context and self.training:
            return self._act(primary, torch.zeros_like(primary), rule)
        if self.context_gradient == "slot" or not torch.is_grad_enabled():
            return self._act(primary, pick(context, slots, events), rule)
        update = self._act(primary, pick(context.detach(), slots, events), rule)
        own, other = primary.unsqueeze(-1 - events), slots.unsqueeze(-2 - events)
        pairs = torch.broadcast_shapes(own.shape, other.shape)
        rules = rule.unsqueeze(-2).expand(*context.shape, rule.shape[-1])
        each = self._act(own.expand(pairs), other.expand(pairs), rules).detach()
        # Zero in value; its gradient is that of the context-weighted sum of the updates.
        weight = unsqueeze_right(context - context.detach(), events).to(each.dtype)
        return update + (weight * each).sum(-1 - events)

    def _act(self, primary: Tensor, context: Tensor, rule: Tensor) -> Tensor:
        """Run the rule set on any number of leading dimensions."""
        events = self.rules.event_dims
        batch = primary.shape[:-events]
        slot = primary.shape[-events:]
        update: Tensor = self.rules(
            primary.reshape(-1, *slot), context.reshape(-1, *slot), rule.reshape(-1, rule.shape[-1])
        )
        return update.reshape(*batch, *slot)

    # -- noise --------------------------------------------------------------------------------

    @abstractmethod
    def _choices(self, m: int) -> list[tuple[int, ...]]:
        """Shapes of one stage's choices, in the order the stage makes them."""

    def _shares(self, m: int) -> Shares:
        # A scheduled dropout is a tensor on the device; draw its numbers without reading its value.
        drops = isinstance(self.dropout, Tensor) or self.dropout > 0
        drop = (m, len(self.rules)) if drops else None
        return Shares(self.stages, self._choices(m), drop, bool(self.context_dropout))

    def noise_shape(self, *batch: int, slots: int) -> tuple[int, ...]:
        """Shape of the uniform numbers that one training call on (..., slots, D) uses."""
        return self._shares(slots).shape(*batch)

    # -- features -----------------------------------------------------------------------------

    def _features(
        self, slots: Tensor, selection: Selection | None, slot_mask: Tensor | None
    ) -> Float[Tensor, "*batch M F"]:
        """What selection and binding see."""
        events = self.rules.event_dims
        if selection is None:
            features = slots if events == 1 else slots.mean((-2, -1))
        else:
            features = selection(slots) if callable(selection) else selection
            require_type("selection", features, Tensor, "a tensor or a function that returns one")
        expected = (*slots.shape[:-events], self.selection_dim)
        if tuple(features.shape) != expected:
            raise ValueError(
                f"selection: got shape {tuple(features.shape)}, expected {expected} "
                f"(selection_dim = {self.selection_dim})"
            )
        if selection is not None:
            if slot_mask is not None:
                features = torch.where(slot_mask.unsqueeze(-1), features, 0.0)
            require_dtype("selection", features, self.rules.embedding.dtype)
            require_finite("selection", features)
        return exact(features)
