"""Algorithm 1: one (rule, primary slot) pair a stage, K stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from nps.rules import fused
from nps.rules.layer import RuleLayer
from nps.rules.noise import StageNoise
from nps.rules.projection import match, project
from nps.rules.stage import Choices, pick, residual

if TYPE_CHECKING:
    from jaxtyping import Float


class Found(NamedTuple):
    """What steps 2 and 3 chose, one-hot, and the scores behind it."""

    primary: Float[Tensor, "*batch M"]
    rule: Float[Tensor, "*batch N"]
    own: Float[Tensor, "*batch 1 F"]
    """The primary slot's features."""
    context: Float[Tensor, "*batch 1 M"]
    scores: Float[Tensor, "*batch M N"]
    context_scores: Float[Tensor, "*batch 1 M"]


class SequentialNPS(RuleLayer):
    r"""The sequential neural production system, `Neural Production Systems
    <https://arxiv.org/abs/2103.01937>`_, Algorithm 1.

    Each of K stages picks one pair of primary slot and rule among all M·N, then one contextual
    slot, and adds the rule's action to the primary slot alone:

    .. math::
        p, r &= \mathrm{argmax}_{j,i}\,(V_j W^q \cdot R_i W^k + \gamma) \\
        c &= \mathrm{argmax}_j\,(V_p \tilde W^q \cdot V_j \tilde W^k + \gamma) \\
        V_p &\leftarrow V_p + \mathrm{MLP}_r([V_p, V_c])

    with :math:`\gamma` Gumbel noise in training and none in evaluation. The choices are hard with
    straight-through gradients, which reach every rule and every slot.

    Args:
        slot_dim: D, size of a slot (channels for convolutional rules).
        num_rules: number of rules N.
        stages: number of stages K.
        rule_dim: size of a rule's embedding.
        key_dim: size of queries and keys (paper: 32).
        hidden_dim: hidden units of a rule's MLP (paper: 128).
        hidden_layers: of a rule's MLP (paper: 1).
        temperature: of the softmax that gives the gradient (paper: 1).
        selection_dim: size of the features selection sees, where they are not the slots.
        dropout: probability that a rule score is set to zero in training (paper: 0.35 on
            coordinate arithmetic). It keeps rules in play that an early winner would starve.
        context_dropout: the same for the scores of contexts (paper: 0).
        query: `"linear"` as in the paper, or `"mlp"`: a small network, needed where no linear
            score can tell the slots apart (one rule and an action copied to every slot: the
            action's term is equal for all slots and cancels).
        context_query: the same for the choice of the context; default: as `query`.
        self_context: may a slot be its own context? The paper does not exclude it. With False and
            no other slot to look at, the context is zero and the trace says -1.
        context_gradient: what the choice of a context learns from. `"slot"` as in the paper: the
            chosen slot is a weighted sum of all, and the gradient is that of the rule's input. A
            rule that does nothing in the wrong context then learns nothing of the right one.
            `"update"`: the rule acts in every context, the update is the weighted sum, and the
            gradient knows what each context would have done. The values are the same; training
            computes M times as many updates.
        rules: another rule set, e.g. `ConvRules`; its sizes are its own.

    Shapes: slots (..., M, D) -> (..., M, D).
    """

    algorithm: fused.Algorithm | None = fused.sequential

    def _choices(self, m: int) -> list[tuple[int, ...]]:
        return [(m * len(self.rules),), (1, m)]

    def _stage(
        self,
        slots: Tensor,
        features: Tensor,
        embedding: Tensor,
        slot_mask: Tensor | None,
        noise: StageNoise,
    ) -> tuple[Tensor, Choices]:
        events = self.rules.event_dims
        primary, rule, own, context, *scores = self._found(features, embedding, slot_mask, noise)

        # Step 4: the chosen rule reads both slots and changes the primary slot alone.
        at_primary = primary.unsqueeze(-2)
        acting = own if features is slots else pick(at_primary, slots, events)
        update = self._act_in(acting, context, slots, rule.unsqueeze(-2))
        slots = residual(slots, primary, update, events)
        return slots, Choices(primary, rule.unsqueeze(-2), context, *scores)

    def _found(
        self,
        features: Tensor,
        embedding: Tensor,
        slot_mask: Tensor | None,
        noise: StageNoise,
        primaries: Tensor | None = None,
    ) -> Found:
        """Steps 2 and 3; `primaries` are the slots of which step 2 chooses, if not all."""
        m, n = features.shape[-2], len(self.rules)
        pair_noise, context_noise = noise.choices
        queries, keys = project(features, self.select.query, self.bind.key)

        # Step 2: one (slot, rule) pair among M·N.
        scores = match(queries, self.select.key(embedding))
        allowed = self._pairs_allowed(slot_mask if primaries is None else primaries)
        pair = self._choose(
            self._drop(scores, noise.drop).flatten(-2),
            None if allowed is None else allowed.expand_as(scores).flatten(-2),
            pair_noise,
        ).unflatten(-1, (m, n))
        primary, rule = pair.sum(-1), pair.sum(-2)

        # Step 3: one context for the primary slot.
        own = pick(primary.unsqueeze(-2), features)
        context_scores = match(self.bind.query(own), keys)
        allowed = self._context_allowed(slot_mask, m, features.device)
        if allowed is not None:  # the primary slot's row
            allowed = ((primary.detach() > 0).unsqueeze(-1) & allowed).any(-2, keepdim=True)
        kept = self._drop_context(context_scores, noise.drop_context)
        context = self._choose(kept, allowed, context_noise)
        return Found(primary, rule, own, context, scores, context_scores)
