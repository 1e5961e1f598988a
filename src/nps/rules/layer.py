"""What both rule layers share: the call and the steps of a stage (construction.py builds them).

A call checks its input, draws its noise (noise.py) and runs K stages; `sequential.py` and
`parallel.py` say what a stage is. To change an algorithm, subclass its layer and override a step:

- `select_rule(features, allowed, noise)`: step 2, primary slots and their rules;
- `bind_context(features, primary, allowed, noise)`: step 3, their contexts;
- `apply_rule(slots, primary, rule, context)`: step 4, the new slots;
- or the whole `stage(slots, features, allowed, noise)`.

A layer with its own step never takes the accelerated form of the stock layers (`fast.py`), and
needs its own `log_prior` if it is to be trained on every choice at once (`every.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor

from nps.rules import fast
from nps.rules.allowed import Allowed
from nps.rules.every import EveryUpdate
from nps.rules.inputs import Selection
from nps.rules.noise import Noise, Shares, StageNoise
from nps.rules.slots import pick, unsqueeze_right
from nps.rules.trace import Choices, Trace

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class RuleLayer(EveryUpdate, ABC):
    """Base of `SequentialNPS` and `ParallelNPS`, whose docstrings explain the arguments."""

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
        given, slots = slots, self._checked(slots, slot_mask)
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
