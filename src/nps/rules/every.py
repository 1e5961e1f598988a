"""Every choice of a stage at once: what each could do, and how likely the scores make it.

For objectives that compare all choices, such as the free energy (`energy.py`). What is computed
for a slot, a rule and a context is what the steps of `sequential.py` and `parallel.py` would give
if they had chosen them; the algorithms say how likely that is in their `log_prior`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.rules.allowed import Allowed
from nps.rules.choice import log_shares
from nps.rules.inputs import CheckedInput, Selection
from nps.rules.slots import unsqueeze_right

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class EveryUpdate(CheckedInput):
    """A layer that can try every slot, rule and context."""

    without_context = False
    """In training, rules see zeros in place of their context (an optional first phase)."""

    def every_update(
        self,
        slots: Float[Tensor, "*batch M *slot"],
        *,
        selection: Selection | None = None,
        slot_mask: Bool[Tensor, "*batch M"] | None = None,
    ) -> tuple[Float[Tensor, "*batch M N M"], Float[Tensor, "*batch M N M *slot"]]:
        r"""All updates that one stage could make, and how likely its scores make each of them.

        .. math::
            \log \pi(p, r)\, \rho(c \mid p), \qquad V_p + \mathrm{MLP}_r([V_p, V_c])

        for every slot p, rule r and context c, with the softmaxes :math:`\pi` and :math:`\rho` of
        the scores of steps 2 and 3. `nps.rules.free_energy` makes a loss of it, in whose docstring
        there is an example. Nothing is drawn: no noise, no dropout. It costs M·N·M actions,
        except for their first layers, which read the two slots separately.

        Masked slots, disabled rules and, without `self_context`, the slot itself as context have
        no share. `ParallelNPS` chooses slot by slot, so its shares add up to one for each p, and
        has N + 1 rules: the last is the null rule, which keeps the slot, as its own context.

        Args:
            slots, selection, slot_mask: as for the call of the layer.

        Returns:
            The log-probabilities, (..., M, N, M), and slot p after each update, (..., M, N, M, D).
        """
        self._require_stock_steps()
        events, given = self.rules.event_dims, slots
        slots = self._checked(slots, slot_mask)
        features = self._features(slots, selection, slot_mask)
        allowed, m = Allowed(slot_mask, self.rules.allowed()), slots.shape[-1 - events]
        log_prior = self.log_prior(features, allowed)
        others = allowed.contexts(m, self.self_context, slots.device)
        if self.without_context and self.training:
            others = torch.zeros(m, m, dtype=torch.bool, device=slots.device)
        update = self._in_every_context(slots, others)
        own = given.unsqueeze(-1 - events).unsqueeze(-1 - events)
        updated = own + update.to(own.dtype)
        pairs = allowed.pairs()
        if pairs is not None:
            updated = torch.where(unsqueeze_right(pairs, 1 + events), updated, own)
        if log_prior.shape[-2] > len(self.rules):  # the null rule
            unchanged = own.expand_as(updated.narrow(-2 - events, 0, 1))
            updated = torch.cat([updated, unchanged], -2 - events)
        return log_prior, updated

    def _require_stock_steps(self) -> None:
        """Refuse a subclass with other steps than those that `log_prior` describes."""
        kind = type(self)
        stock = next(base for base in kind.__mro__ if "log_prior" in vars(base))
        for step in ("stage", "select_rule", "bind_context", "apply_rule"):
            if getattr(kind, step, None) is not getattr(stock, step, None):
                raise ValueError(
                    f"every_update: {kind.__name__} has its own {step}, expected that of "
                    f"{stock.__name__}, or a log_prior for it"
                )

    def _in_every_context(
        self, slots: Float[Tensor, "*batch M *slot"], contexts: Bool[Tensor, "*#batch #M M"] | None
    ) -> Float[Tensor, "*batch M N M *slot"]:
        """Run the rule set on every pair of slots, for any number of leading dimensions."""
        events = self.rules.event_dims
        batch, m = slots.shape[: -1 - events], slots.shape[-1 - events]
        rows = slots.reshape(-1, *slots.shape[-1 - events :])
        if contexts is not None:
            contexts = contexts.expand(*batch, m, m).reshape(-1, m, m)
        update = self.rules.in_every_context(rows, contexts)
        return update.reshape(*batch, *update.shape[1:])

    def log_prior(
        self, features: Float[Tensor, "*batch M F"], allowed: Allowed
    ) -> Float[Tensor, "*batch M N M"]:
        """Log-probability of each slot, rule and context, for `every_update`."""
        raise ValueError(f"every_update: {type(self).__name__} has no scores of slots and rules")

    def log_contexts(
        self, features: Float[Tensor, "*batch M F"], allowed: Allowed
    ) -> Float[Tensor, "*batch M M"]:
        """Row m: log-probability of all slots as context of slot m."""
        others = allowed.contexts(features.shape[-2], self.self_context, features.device)
        return log_shares(self.bind(features, features), others, self.temperature)
