"""Algorithm 2: every slot picks a rule or the null rule, all at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nps.rules import fused
from nps.rules.check import require_number
from nps.rules.layer import RuleLayer
from nps.rules.noise import StageNoise
from nps.rules.projection import Projection, Query, match, project
from nps.rules.stage import Choices, residual

MOST_HANDICAP = 1e6
"""With as much, no bid of the null rule wins."""


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

    The algorithm leaves four things open; this is how they are read here:

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

    Args: as for `SequentialNPS`. `query="mlp"` holds for the choice of primary slots as well.
        null_handicap: taken off the null rule's bids (paper: 0). Where a rule's first, random
            changes do harm, the null rule wins most slots before the rules have learned what to do
            with them, and a slot that no rule changes teaches them nothing.

    Shapes: slots (..., M, D) -> (..., M, D).
    """

    algorithm = fused.parallel

    def __init__(
        self, slot_dim: int, num_rules: int, *, null_handicap: float = 0.0, **options: Any
    ) -> None:
        require_number("null_handicap", null_handicap, 0.0, MOST_HANDICAP, open_top=False)
        super().__init__(slot_dim, num_rules, **options)
        self.null_handicap = null_handicap

    def _fuses(self, slots: Tensor) -> bool:
        return self.null_handicap == 0 and super()._fuses(slots)

    def _make_selection(self, key_dim: int, query: Query, context_query: Query) -> None:
        super()._make_selection(key_dim, query, context_query)
        self.rules.make_applicable(key_dim)
        self.slot_key = Projection(self.selection_dim, key_dim, query)
        self.null_rule = nn.Parameter(torch.randn(key_dim))

    def _maps(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """The bids before the rules, see `nps.rules.fused.parallel`."""
        rule_map, bind_map = super()._maps(embedding)
        bidders = torch.stack([self.rules.joint_key(), self.null_rule])
        return torch.cat([bidders @ self.slot_key.out.weight, rule_map]), bind_map

    def _choices(self, m: int) -> list[tuple[int, ...]]:
        return [(m, 2), (m, len(self.rules)), (m, m)]

    def _stage(
        self,
        slots: Tensor,
        features: Tensor,
        embedding: Tensor,
        slot_mask: Tensor | None,
        noise: StageNoise,
    ) -> tuple[Tensor, Choices]:
        events = self.rules.event_dims
        bid_noise, rule_noise, context_noise = noise.choices
        slot_keys, queries, context_queries, context_keys = project(
            features, self.slot_key, self.select.query, self.bind.query, self.bind.key
        )

        # Step 2: the slots that the rules, jointly, win from the null rule.
        bidders = torch.stack([self.rules.joint_key(), self.null_rule.to(embedding.dtype)])
        bids = match(slot_keys, bidders)
        if self.null_handicap:
            bids = torch.stack([bids[..., 0], bids[..., 1] - self.null_handicap], -1)
        won = self._choose(bids, None, bid_noise)[..., 0]

        # Step 3: a rule for each of them.
        scores = match(queries, self.select.key(embedding))
        allowed = self._pairs_allowed(slot_mask)
        rule = self._choose(self._drop(scores, noise.drop), allowed, rule_noise)
        # Where no rule may fire (a masked slot, all rules disabled) the row is zero.
        primary = won if allowed is None else won * rule.detach().sum(-1)

        # Step 4: a context for each of them.
        context_scores = match(context_queries, context_keys)
        allowed = self._context_allowed(slot_mask, features.shape[-2], slots.device)
        kept = self._drop_context(context_scores, noise.drop_context)
        context = self._choose(kept, allowed, context_noise)

        # Step 5: all at once.
        # Slots of the null rule need no update, unless for the gradient to `primary`.
        fired = rule if torch.is_grad_enabled() else rule * primary.unsqueeze(-1)
        update = self._act_in(slots, context, slots, fired)
        slots = residual(slots, primary, update, events)
        return slots, Choices(primary, rule, context, scores, context_scores)
