"""Both algorithms with a gate: where no rule has anything to do, nothing changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor, nn

from nps.rules.allowed import Allowed
from nps.rules.choice import drop_scores, hard_choice
from nps.rules.config import Query
from nps.rules.construction import ConfiguredLayer
from nps.rules.noise import StageNoise
from nps.rules.parallel import ParallelNPS
from nps.rules.projection import Factory
from nps.rules.select import Selected, select_primaries, select_rules
from nps.rules.sequential import SequentialNPS
from nps.rules.slots import unsqueeze_right
from nps.rules.trace import Choices

if TYPE_CHECKING:
    from jaxtyping import Float


class GatedNPS(SequentialNPS):
    r"""Sequential NPS whose stages may fire no rule.

    In Algorithm 1 a rule fires at every stage, on the best of all slots, also where nothing
    happens. Here the pair (p, r) that wins the stage has to beat a null rule as well, of which only
    a score :math:`s_{null}` is learned:

    .. math::
        g = [\mathrm{score}_{pr} + \gamma > s_{null} + \gamma'], \qquad
        V_p \leftarrow V_p + g\, \mathrm{MLP}_r([V_p, V_c])

    The gate is a hard two-way choice with a straight-through gradient, as between the rules and the
    null rule in Algorithm 2; it learns also where it is closed. A closed stage has no slot in the
    trace, and returns all slots bit for bit.

    It takes the arguments of `SequentialNPS`, and its own steps (no kernels).

    Shapes: slots (..., M, D) -> (..., M, D).
    """

    def _make_selection(
        self, key_dim: int, query: Query, context_query: Query, **factory: Unpack[Factory]
    ) -> None:
        super()._make_selection(key_dim, query, context_query, **factory)
        self.null_score = nn.Parameter(torch.zeros((), **factory))

    def _reset_selection(self) -> None:
        super()._reset_selection()
        nn.init.zeros_(self.null_score)

    def stage(
        self, slots: Tensor, features: Tensor, allowed: Allowed, noise: StageNoise
    ) -> tuple[Tensor, Choices]:
        selected = self.select_rule(features, allowed, noise)
        primary, rule, rule_scores = selected
        gate = self.open_gate(selected, noise)
        context, context_scores = self.bind_context(features, primary, allowed, noise)
        changed = self.apply_rule(slots, primary, rule, context)
        # Exactly one of the two terms is zero.
        share = unsqueeze_right(gate.unsqueeze(-1), self.rules.event_dims).to(changed.dtype)
        slots = share * changed + (1.0 - share) * slots
        fired = primary * gate.unsqueeze(-1)
        return slots, Choices(fired, rule, context, rule_scores, context_scores)

    def open_gate(self, selected: Selected, noise: StageNoise) -> Float[Tensor, "*batch"]:
        """1 where the selected pair beats the null rule, 0 elsewhere."""
        primary, rule, scores = selected
        pair = (primary.unsqueeze(-1) * rule).detach()
        won = (pair * scores).sum((-1, -2))
        bids = torch.stack([won, self.null_score.to(won.dtype).expand_as(won)], -1)
        return hard_choice(bids, noise=noise.choices[1], temperature=self.temperature)[..., 0]

    def _choices(self, m: int) -> list[tuple[int, ...]]:
        pair, context = super()._choices(m)
        return [pair, (2,), context]


class GatedParallelNPS(ParallelNPS):
    r"""Parallel NPS in which a slot looks before it fires.

    In Algorithm 2 the null rule competes for a slot by the slot's own features, before the slot has
    looked at any other. Whether a ball is about to be hit is not in there. Here each slot first
    picks a rule and a context; then both together have to beat the null rule, of which only a score
    :math:`s_{null}` is learned:

    .. math::
        P = \{ p : \mathrm{score}_{p r_p} + \mathrm{score}_{p c_p} - s_{null} + \gamma > \gamma' \}

    In the trace, the scores of rules are the left side of this, without noise, for each of the
    rules: a rule fires where its score is above zero. A price on the positive ones, in the loss,
    makes rules fire where they matter alone.

    It takes the arguments of `SequentialNPS`, and its own steps (no kernels).

    Shapes: slots (..., M, D) -> (..., M, D).
    """

    unused = SequentialNPS.unused

    def _make_selection(
        self, key_dim: int, query: Query, context_query: Query, **factory: Unpack[Factory]
    ) -> None:
        ConfiguredLayer._make_selection(self, key_dim, query, context_query, **factory)
        self.null_score = nn.Parameter(torch.zeros((), **factory))

    def _reset_selection(self) -> None:
        ConfiguredLayer._reset_selection(self)
        nn.init.zeros_(self.null_score)

    def stage(
        self, slots: Tensor, features: Tensor, allowed: Allowed, noise: StageNoise
    ) -> tuple[Tensor, Choices]:
        able, rule, scores = self.select_rule(features, allowed, noise)
        context, context_scores = self.bind_context(features, able, allowed, noise)
        in_context = (context.detach() * context_scores).sum(-1, keepdim=True)
        scores = scores + in_context - self.null_score.to(scores.dtype)
        primary = self.open_gate(Selected(able, rule, scores), noise)
        slots = self.apply_rule(slots, primary, rule, context)
        return slots, Choices(primary, rule, context, scores, context_scores)

    def select_rule(
        self, features: Float[Tensor, "*batch M F"], allowed: Allowed, noise: StageNoise
    ) -> Selected:
        """A rule for each slot, before the null rule has been asked."""
        scores = self.select(features, self.rules.tensor("embedding"))
        kept = drop_scores(scores, noise.drop, self.dropout)
        rule = select_rules(kept, allowed.pairs(), noise.choices[1], self.temperature)
        return Selected(rule.detach().sum(-1), rule, scores)  # 0 where no rule is allowed

    def open_gate(self, selected: Selected, noise: StageNoise) -> Float[Tensor, "*batch M"]:
        """1 for the slots whose rule and context together beat the null rule, 0 for the others."""
        able, rule, scores = selected
        won = (rule.detach() * scores).sum(-1)
        bids = torch.stack([won, torch.zeros_like(won)], -1)
        return able * select_primaries(bids, noise.choices[0], self.temperature)
