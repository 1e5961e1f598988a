"""Algorithm 2: every slot picks a rule or the null rule, all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor, nn

from nps.rules.allowed import Allowed
from nps.rules.bind import Bound, bind_contexts
from nps.rules.check import require_number
from nps.rules.choice import NOT_ALLOWED, drop_scores, log_shares
from nps.rules.config import MAX_HANDICAP, Query, RuleConfig
from nps.rules.construction import LayerOptions
from nps.rules.layer import RuleLayer
from nps.rules.noise import StageNoise
from nps.rules.projection import Factory, Projection, match, reset_linear
from nps.rules.select import Selected, select_primaries, select_rules
from nps.rules.slots import residual
from nps.rules.trace import Choices

if TYPE_CHECKING:
    from jaxtyping import Float


class ParallelNPS(RuleLayer):
    r"""The parallel neural production system, `Neural Production Systems
    <https://arxiv.org/abs/2103.01937>`_, Algorithm 2.

    Each slot is first won by the rules jointly or by the null rule; a slot won by the rules picks
    one of them and one context, and is changed. Slots of the null rule come back as they were.

    .. math::
        R_a &= [R_1, \dots, R_N]\, W^{R_a}, \qquad k_j = V_j \hat W^k \\
        P &= \{ j : R_a \cdot k_j + \gamma > R_{null} \cdot k_j + \gamma' \} \\
        r_p &= \mathrm{argmax}_i\,(V_p W^q \cdot R_i W^k + \gamma) \\
        c_p &= \mathrm{argmax}_j\,(V_p \tilde W^q \cdot V_j \tilde W^k + \gamma) \\
        V_p &\leftarrow V_p + \mathrm{MLP}_{r_p}([V_p, V_{c_p}]) \qquad \forall p \in P

    The algorithm leaves four things open. We read them as follows:

    - Both sides of the comparison carry a noise written γ. The two are drawn independently (one
      shared draw would cancel): membership in P is a two-way Gumbel choice, with the
      straight-through gradient of a two-way softmax.
    - `R_Null` meets `k_j` directly, so it is a learned vector of size `key_dim`; it has no W^k.
    - The steps are written without a loop over stages although K is listed as an input: steps 2
      to 5 are repeated `stages` times.
    - All slots of P change at once: contexts are read before any slot is changed.

    `W^{R_a}` reads the concatenation of all embeddings, so a removed rule would change the joint
    bid of the others. Its share stays in the bid (`rules.retired`), and rules added later begin
    with no share: surgery on one rule leaves the set P alone.

    It takes the arguments of `SequentialNPS`, where `query="mlp"` holds for the choice of primary
    slots as well, and one more:

    Args:
        null_handicap: subtracted from the null rule's bids (paper: 0). Where a rule's first,
            random changes do harm, the null rule wins most slots before the rules have learned
            what to do with them, and a slot that no rule changes teaches them nothing.

    Shapes: slots (..., M, D) -> (..., M, D).
    """

    unused = frozenset({"most"})

    def __init__(
        self,
        slot_dim: int,
        num_rules: int,
        *,
        null_handicap: float = RuleConfig.null_handicap,
        **options: Unpack[LayerOptions],
    ) -> None:
        require_number("null_handicap", null_handicap, 0.0, MAX_HANDICAP, open_top=False)
        super().__init__(slot_dim, num_rules, **options)
        self.null_handicap = null_handicap

    def _make_selection(
        self, key_dim: int, query: Query, context_query: Query, **factory: Unpack[Factory]
    ) -> None:
        super()._make_selection(key_dim, query, context_query, **factory)
        self.rules.make_applicable(key_dim)
        self.slot_key = Projection(self.selection_dim, key_dim, query, **factory)
        self.null_rule = nn.Parameter(torch.randn(key_dim, **factory))

    def _reset_selection(self) -> None:
        super()._reset_selection()
        self.rules.reset_applicability()
        reset_linear(self.slot_key)
        nn.init.normal_(self.null_rule)

    def stage(
        self, slots: Tensor, features: Tensor, allowed: Allowed, noise: StageNoise
    ) -> tuple[Tensor, Choices]:
        # Steps 2 and 3: select the primary slots, and a rule for each.
        primary, rule, rule_scores = self.select_rule(features, allowed, noise)
        # Step 4: bind a contextual slot to each.
        context, context_scores = self.bind_context(features, primary, allowed, noise)
        # Step 5: all primary slots change at once.
        slots = self.apply_rule(slots, primary, rule, context)
        return slots, Choices(primary, rule, context, rule_scores, context_scores)

    def bids(self, features: Float[Tensor, "*batch M F"]) -> Float[Tensor, "*batch M 2"]:
        """Bids for each slot: that of all rules jointly, and that of the null rule."""
        joint = self.rules.joint_key()
        bids = match(self.slot_key(features), torch.stack([joint, self.null_rule.to(joint.dtype)]))
        if self.null_handicap:
            bids = torch.stack([bids[..., 0], bids[..., 1] - self.null_handicap], -1)
        return bids

    def select_rule(
        self, features: Float[Tensor, "*batch M F"], allowed: Allowed, noise: StageNoise
    ) -> Selected:
        if self.null_handicap < MAX_HANDICAP:
            primary = select_primaries(self.bids(features), noise.choices[0], self.temperature)
        else:  # a null rule that never wins need not bid
            primary = torch.ones_like(features[..., 0])
        scores = self.select(features, self.rules.tensor("embedding"))
        kept = drop_scores(scores, noise.drop, self.dropout)
        pairs = allowed.pairs()
        rule = select_rules(kept, pairs, noise.choices[1], self.temperature)
        if pairs is not None:  # a masked slot, or all rules disabled: no rule fires
            primary = primary * rule.detach().sum(-1)
        return Selected(primary, rule, scores)

    def bind_context(
        self,
        features: Float[Tensor, "*batch M F"],
        primary: Float[Tensor, "*batch M"],
        allowed: Allowed,
        noise: StageNoise,
    ) -> Bound:
        scores = self.bind(features, features)
        kept = drop_scores(scores, noise.drop_context, self.context_dropout)
        others = allowed.contexts(features.shape[-2], self.self_context, features.device)
        return Bound(bind_contexts(kept, others, noise.choices[2], self.temperature), scores)

    def apply_rule(
        self,
        slots: Float[Tensor, "*batch M *slot"],
        primary: Float[Tensor, "*batch M"],
        rule: Float[Tensor, "*batch M N"],
        context: Float[Tensor, "*batch M M"],
    ) -> Float[Tensor, "*batch M *slot"]:
        # Slots of the null rule need no update, except for the gradient to `primary`.
        fired = rule if torch.is_grad_enabled() else rule * primary.unsqueeze(-1)
        update = self._update(slots, context, slots, fired)
        return residual(slots, primary, update, self.rules.event_dims)

    def log_prior(
        self, features: Float[Tensor, "*batch M F"], allowed: Allowed
    ) -> Float[Tensor, "*batch M N+1 M"]:
        scores, pairs = self.select(features, self.rules.tensor("embedding")), allowed.pairs()
        rule = log_shares(scores, pairs, self.temperature)
        able = torch.ones_like(scores[..., 0], dtype=torch.bool)
        if pairs is not None:  # a masked slot, or all rules disabled: no rule fires
            able = pairs.expand_as(scores).any(-1)
        null = torch.ones_like(able) if self.null_handicap < MAX_HANDICAP else ~able
        sides = torch.stack([able, null], -1)
        won, lost = log_shares(self.bids(features), sides, self.temperature).unbind(-1)
        pair = (won.unsqueeze(-1) + rule).unsqueeze(-1)
        fired = pair + self.log_contexts(features, allowed).unsqueeze(-2)
        itself = torch.eye(scores.shape[-2], dtype=torch.bool, device=scores.device)
        unchanged = torch.where(itself, lost.unsqueeze(-1), NOT_ALLOWED)
        return torch.cat([fired, unchanged.unsqueeze(-2)], -2)

    def _choices(self, m: int) -> list[tuple[int, ...]]:
        return [(m, 2), (m, len(self.rules)), (m, m)]
