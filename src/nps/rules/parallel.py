"""Algorithm 2: every slot picks a rule or the null rule, all at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nps.rules.gumbel import hard_choice
from nps.rules.layer import RuleLayer
from nps.rules.projection import Projection, Query, match
from nps.rules.stage import Choices, residual


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

    Shapes: slots (..., M, D) -> (..., M, D).
    """

    def _make_selection(self, key_dim: int, query: Query, context_query: Query) -> None:
        super()._make_selection(key_dim, query, context_query)
        self.rules.make_applicable(key_dim)
        self.slot_key = Projection(self.selection_dim, key_dim, query)
        self.null_rule = nn.Parameter(torch.randn(key_dim))

    def _noise_parts(self, m: int) -> list[tuple[int, ...]]:
        n = len(self.rules)
        return [(m, 2), (m, n), (m, m), (m, n) if self.dropout > 0 else (0,)]

    def _stage(
        self,
        slots: Tensor,
        features: Tensor,
        embedding: Tensor,
        slot_mask: Tensor | None,
        uniform: Tensor | None,
    ) -> tuple[Tensor, Choices]:
        events = self.rules.event_dims
        m = features.shape[-2]
        bid_noise, rule_noise, context_noise, drop = self._take(uniform, m)

        # Step 2: the slots that the rules, jointly, win from the null rule.
        bidders = torch.stack([self.rules.joint_key(), self.null_rule.to(embedding.dtype)])
        bids = match(self.slot_key(features), bidders)
        won = hard_choice(bids, uniform=bid_noise, temperature=self.temperature)[..., 0]

        # Step 3: a rule for each of them.
        scores, dropped = self._score_rules(features, embedding, drop)
        allowed = self._pairs_allowed(slot_mask)
        rule = hard_choice(
            dropped,
            allowed=None if allowed is None else allowed.expand_as(scores),
            uniform=rule_noise,
            temperature=self.temperature,
        )
        # Where no rule may fire (a masked slot, all rules disabled) the row is zero.
        primary = won if allowed is None else won * rule.detach().sum(-1)

        # Step 4: a context for each of them.
        context_scores = self.bind(features, features)
        allowed = self._context_allowed(slot_mask, m, slots.device)
        context = hard_choice(
            context_scores,
            allowed=None if allowed is None else allowed.expand_as(context_scores),
            uniform=context_noise,
            temperature=self.temperature,
        )

        # Step 5: all at once.
        with torch.autocast(slots.device.type, enabled=False):
            flat = slots.flatten(-events)
            contexts = (context.to(slots.dtype) @ flat).reshape(slots.shape)
        # Slots of the null rule need no update, unless for the gradient to `primary`.
        fired = rule if torch.is_grad_enabled() else rule * primary.unsqueeze(-1)
        update = self._act(slots, contexts, fired)
        slots = residual(slots, primary, update, events)
        return slots, Choices(primary, rule, context, scores, context_scores)
