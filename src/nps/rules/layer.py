"""What both rule layers share: the constructor, the call, and the steps of a stage.

Each algorithm says what its stage is. Where the randomness of a call comes from: noise.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from nps.rules import fused
from nps.rules.apply import ACTION, MLPRules
from nps.rules.bind import Bind
from nps.rules.check import (
    require_choice,
    require_finite,
    require_int,
    require_number,
    require_slots,
    require_type,
)
from nps.rules.gumbel import MIN_TEMPERATURE, hard_choice
from nps.rules.noise import Noise, Shares, StageNoise
from nps.rules.projection import Query, exact
from nps.rules.ruleset import RuleSet
from nps.rules.select import Select, drop_scores
from nps.rules.stage import Choices, behind, pick
from nps.rules.trace import Trace

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

Selection = Tensor | Callable[[Tensor], Tensor]
ContextGradient = Literal["slot", "update"]


class RuleLayer(nn.Module, ABC):
    """Base of `SequentialNPS` and `ParallelNPS`; their docstrings say what the arguments mean."""

    algorithm: fused.Algorithm | None = None
    """How a stage is computed as one function, where it can be."""
    alone = False
    """In training, rules see zeros in place of a context: a first phase, if a task wants one."""

    def __init__(
        self,
        slot_dim: int,
        num_rules: int,
        *,
        stages: int = 1,
        rule_dim: int = 64,
        key_dim: int = 32,
        hidden_dim: int = 128,
        hidden_layers: int = 1,
        temperature: float = 1.0,
        selection_dim: int | None = None,
        dropout: float = 0.0,
        context_dropout: float = 0.0,
        query: Query = "linear",
        context_query: Query | None = None,
        self_context: bool = True,
        context_gradient: ContextGradient = "slot",
        rules: RuleSet | None = None,
    ) -> None:
        super().__init__()
        require_int("slot_dim", slot_dim, at_least=1)
        require_int("num_rules", num_rules, at_least=1)
        require_int("stages", stages, at_least=1)
        require_int("key_dim", key_dim, at_least=1)
        require_number("temperature", temperature, MIN_TEMPERATURE, float("inf"), open_top=True)
        require_number("dropout", dropout, 0.0, 1.0, open_top=True)
        require_number("context_dropout", context_dropout, 0.0, 1.0, open_top=True)
        require_choice("query", query, ("linear", "mlp"))
        context_query = query if context_query is None else context_query
        require_choice("context_query", context_query, ("linear", "mlp"))
        if selection_dim is None:
            selection_dim = slot_dim
        require_int("selection_dim", selection_dim, at_least=1)
        require_type("self_context", self_context, bool, "True or False")
        require_choice("context_gradient", context_gradient, get_args(ContextGradient))
        if rules is None:
            rules = MLPRules(
                num_rules,
                slot_dim,
                rule_dim=rule_dim,
                hidden_dim=hidden_dim,
                hidden_layers=hidden_layers,
            )
        require_type("rules", rules, RuleSet, "a rule set such as ConvRules")
        if (len(rules), rules.slot_dim) != (num_rules, slot_dim):
            raise ValueError(
                f"rules: got {len(rules)} rules of slot_dim {rules.slot_dim}, "
                f"expected {num_rules} of {slot_dim}"
            )
        self.slot_dim = slot_dim
        self.selection_dim = selection_dim
        self.stages = stages
        # A schedule may put a tensor on the device in place of these two; nothing looks at them.
        self.temperature: float | Tensor = temperature
        self.dropout: float | Tensor = dropout
        self.context_dropout = context_dropout
        self.self_context = self_context
        self.context_gradient = context_gradient
        self.rules = rules
        self.linear = query == context_query == "linear"
        self._make_selection(key_dim, query, context_query)

    def _make_selection(self, key_dim: int, query: Query, context_query: Query) -> None:
        """Build what chooses rules and contexts."""
        self.select = Select(self.selection_dim, self.rules.rule_dim, key_dim, query)
        self.bind = Bind(self.selection_dim, key_dim, context_query)

    def extra_repr(self) -> str:
        return f"{self.slot_dim}, {len(self.rules)}, stages={self.stages}"

    # -- the call -----------------------------------------------------------------------------

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
            selection: what selection and binding look at, (..., M, selection_dim), where that is
                not the slots themselves: a tensor, the same at every stage, or a function of the
                current slots. The actions never see it.
            slot_mask: (..., M); False slots are never chosen, neither primary nor context, and
                come back as they were, whatever they hold.
            noise: in training, a `torch.Generator`, or uniform numbers of shape
                `noise_shape(...)`; by default drawn from torch's global generator. Evaluation
                is the deterministic argmax and draws none.
            return_trace: also return what fired where.

        Returns:
            The new slots, or (slots, Trace).
        """
        events = self.rules.event_dims
        require_slots(slots, slot_mask, self.slot_dim, events)
        given = slots
        if slot_mask is not None:
            slots = torch.where(behind(slot_mask, events), slots, 0.0)
        require_finite("slots", slots)
        batch, m = slots.shape[: -1 - events], slots.shape[-1 - events]
        uniform = self._shares(m).uniform(noise, batch, slots.device) if self.training else None
        traces: list[Trace] = []
        for new, choices in self._stages(slots, selection, slot_mask, uniform):
            slots = new
            if return_trace:
                traces.append(choices().trace())
        if slot_mask is not None:
            slots = torch.where(behind(slot_mask, events), slots, given)
        return (slots, Trace.of_stages(traces, len(batch))) if return_trace else slots

    def _stages(
        self,
        slots: Tensor,
        selection: Selection | None,
        slot_mask: Tensor | None,
        uniform: Tensor | None,
    ) -> Iterator[tuple[Tensor, Callable[[], Choices]]]:
        """The slots after each stage, and what was chosen."""
        rules = self.rules
        embedding = rules.tensor("embedding")
        if uniform is not None and selection is None and slot_mask is None and self._fuses(slots):
            opens = fused.launch.opens(slots)
            form = fused.Form(self.algorithm, self.self_context, opens)  # type: ignore[arg-type]
            weights = [*self._maps(embedding), *map(rules.tensor, ACTION)]
            settings = rules.allowed(), self.temperature, self.dropout
            yield from fused.stages(form, slots, weights, uniform, *settings)
            return
        shares = self._shares(slots.shape[-1 - rules.event_dims])
        for draw in shares.of_stages(uniform):
            features = self._features(slots, selection, slot_mask)
            slots, choices = self._stage(slots, features, embedding, slot_mask, draw)
            yield slots, lambda choices=choices: choices  # type: ignore[misc]

    def _fuses(self, slots: Tensor) -> bool:
        """Is this the common case, for which a stage is one function?"""
        rules = self.rules
        if self.algorithm is None or not self.linear or type(rules) is not MLPRules:
            return False
        if self.context_gradient != "slot" or self.context_dropout or rules.hidden_layers > 1:
            return False
        if self.alone:
            return False
        if not rules.any_allowed() or (slots.shape[-2] == 1 and not self.self_context):
            return False
        weights = rules.embedding, rules.weight_in, self.select.query.out.weight
        return fused.applies(slots, weights)

    def _maps(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """Slots to scores, and primary slots to what contexts are compared with."""
        rule_map = self.select.key(embedding) @ self.select.query.out.weight
        return rule_map, self.bind.query.out.weight.t() @ self.bind.key.out.weight

    @abstractmethod
    def _stage(
        self,
        slots: Tensor,
        features: Tensor,
        embedding: Tensor,
        slot_mask: Tensor | None,
        noise: StageNoise,
    ) -> tuple[Tensor, Choices]:
        """One stage: the new slots and what was chosen. Each algorithm is one of these."""

    # -- noise --------------------------------------------------------------------------------

    @abstractmethod
    def _choices(self, m: int) -> list[tuple[int, ...]]:
        """Shapes of one stage's choices, in the order the stage makes them."""

    def _shares(self, m: int) -> Shares:
        # A dropout that a schedule moves lies on the device: it is there, whatever its value.
        drops = isinstance(self.dropout, Tensor) or self.dropout > 0
        drop = (m, len(self.rules)) if drops else None
        return Shares(self.stages, self._choices(m), drop, bool(self.context_dropout))

    def noise_shape(self, *batch: int, slots: int) -> tuple[int, ...]:
        """Shape of the uniform numbers that one training call on (..., slots, D) uses."""
        return self._shares(slots).shape(*batch)

    # -- steps shared by both algorithms ------------------------------------------------------

    def _drop(self, scores: Float[Tensor, "*batch M N"], uniform: Tensor | None) -> Tensor:
        return scores if uniform is None else drop_scores(scores, uniform, self.dropout)

    def _drop_context(
        self, scores: Float[Tensor, "*batch P M"], uniform: Tensor | None
    ) -> Float[Tensor, "*batch P M"]:
        return scores if uniform is None else drop_scores(scores, uniform, self.context_dropout)

    def _choose(
        self,
        scores: Float[Tensor, "*batch X"],
        allowed: Bool[Tensor, "*#batch X"] | None,
        noise: Float[Tensor, "*batch X"] | None,
    ) -> Float[Tensor, "*batch X"]:
        noisy = scores if noise is None else scores + noise
        return hard_choice(noisy, allowed=allowed, temperature=self.temperature)

    def _pairs_allowed(self, slot_mask: Tensor | None) -> Bool[Tensor, "*batch M N"] | None:
        """May rule i fire on slot m? None when everything may."""
        rules = self.rules.allowed()
        if slot_mask is None:
            return rules
        return slot_mask.unsqueeze(-1) & (True if rules is None else rules)

    def _context_allowed(
        self, slot_mask: Tensor | None, m: int, device: torch.device
    ) -> Bool[Tensor, "*batch M M"] | None:
        """May slot j be the context of slot m? None when every slot may."""
        if self.self_context:
            return None if slot_mask is None else slot_mask.unsqueeze(-2)
        others = ~torch.eye(m, dtype=torch.bool, device=device)
        return others if slot_mask is None else others & slot_mask.unsqueeze(-2)

    def _act_in(
        self,
        primary: Float[Tensor, "*batch P *slot"],
        context: Float[Tensor, "*batch P M"],
        slots: Float[Tensor, "*batch M *slot"],
        rule: Float[Tensor, "*batch P N"],
    ) -> Float[Tensor, "*batch P *slot"]:
        """The rules' updates in the chosen contexts; what the choice learns from differs."""
        events = self.rules.event_dims
        if self.alone and self.training:
            return self._act(primary, torch.zeros_like(primary), rule)
        if self.context_gradient == "slot" or not torch.is_grad_enabled():
            return self._act(primary, pick(context, slots, events), rule)
        update = self._act(primary, pick(context.detach(), slots, events), rule)
        own, other = primary.unsqueeze(-1 - events), slots.unsqueeze(-2 - events)
        pairs = torch.broadcast_shapes(own.shape, other.shape)
        rules = rule.unsqueeze(-2).expand(*context.shape, rule.shape[-1])
        each = self._act(own.expand(pairs), other.expand(pairs), rules).detach()
        # Zero, but for its gradient: that of the sum of each context's update.
        weight = behind(context - context.detach(), events).to(each.dtype)
        return update + (weight * each).sum(-1 - events)

    def _act(self, primary: Tensor, context: Tensor, rule: Tensor) -> Tensor:
        """Run the rule set on any number of leading dimensions, in the slots' own type."""
        events = self.rules.event_dims
        batch = primary.shape[:-events]
        slot = primary.shape[-events:]
        update: Tensor = self.rules(
            primary.reshape(-1, *slot), context.reshape(-1, *slot), rule.reshape(-1, rule.shape[-1])
        )
        return update.reshape(*batch, *slot)

    # -- checks -------------------------------------------------------------------------------

    def _features(
        self, slots: Tensor, selection: Selection | None, slot_mask: Tensor | None
    ) -> Float[Tensor, "*batch M F"]:
        events = self.rules.event_dims
        if selection is None:
            features = slots if events == 1 else slots.mean((-2, -1))
        else:
            features = selection(slots) if callable(selection) else selection
            require_type("selection", features, Tensor, "a tensor or a function that gives one")
        expected = (*slots.shape[:-events], self.selection_dim)
        if tuple(features.shape) != expected:
            raise ValueError(
                f"selection: got shape {tuple(features.shape)}, expected {expected} "
                f"(selection_dim = {self.selection_dim})"
            )
        if selection is not None:
            if slot_mask is not None:
                features = torch.where(slot_mask.unsqueeze(-1), features, 0.0)
            require_finite("selection", features)
        return exact(features)
