"""Algorithm 1: one (rule, primary slot) pair per stage, K stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from nps.rules.allowed import Allowed
from nps.rules.bind import Bound, bind_contexts
from nps.rules.choice import drop_scores, log_shares
from nps.rules.layer import RuleLayer
from nps.rules.noise import StageNoise
from nps.rules.select import Selected, select_pair
from nps.rules.slots import pick, residual
from nps.rules.trace import Choices

if TYPE_CHECKING:
    from jaxtyping import Float


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
        hidden_layers: hidden layers of a rule's MLP (paper: 1). With two, a rule that has to
            compare its slots (are they neighbours?) learns that; with one, often not
            (docs/notes/pushes.md).
        kernel_size: if given, the rules are convolutional (`ConvRules`) and slots feature maps.
        temperature: of the softmax that gives the gradient (paper: 1).
        selection_dim: size of the features that selection sees, where they are not the slots.
        dropout: probability that a rule score is set to zero in training (paper: 0.35 on
            coordinate arithmetic). It keeps rules in play that an early winner would starve.
        context_dropout: the same for the scores of contexts (paper: 0).
        query: `"linear"` as in the paper, or `"mlp"`: a small network, needed where no linear
            score can tell the slots apart (one rule and an action copied to every slot: the
            action's term is equal for all slots and cancels).
        context_query: the same for the choice of the context; default: as `query`.
        self_context: whether a slot may be its own context. The paper does not exclude it. With
            False and no other slot to choose, the context is zero and the trace says -1.
        context_gradient: what the choice of a context learns from. `"slot"` as in the paper: the
            chosen slot is a weighted sum of all, and the gradient is that of the rule's input. A
            rule that does nothing in the wrong context then learns nothing about the right one.
            `"update"`: the rule acts in every context, the update is the weighted sum, and the
            gradient knows what each context would have done. The values are the same; training
            computes M times as many updates.
        zero_start: start the rules' output layers at zero: at first no rule changes a slot. Meant
            for recurrent models, where early random changes add up over the frames; on bouncing
            balls, where slots have places, it made no difference (docs/notes/balls.md).
        rules: another rule set; its sizes are its own.
        device, dtype: of the parameters, as for `nn.Linear`; rules that are given are converted.

    Shapes: slots (..., M, D) -> (..., M, D).

    Example::

        layer = SequentialNPS(slot_dim=64, num_rules=10, stages=3)
        slots, trace = layer(torch.randn(32, 5, 64), return_trace=True)
    """

    def stage(
        self, slots: Tensor, features: Tensor, allowed: Allowed, noise: StageNoise
    ) -> tuple[Tensor, Choices]:
        # Step 2: select one pair of primary slot and rule.
        primary, rule, rule_scores = self.select_rule(features, allowed, noise)
        # Step 3: bind one contextual slot.
        context, context_scores = self.bind_context(features, primary, allowed, noise)
        # Step 4: the rule reads both slots and changes the primary one.
        slots = self.apply_rule(slots, primary, rule, context)
        return slots, Choices(primary, rule, context, rule_scores, context_scores)

    def select_rule(
        self, features: Float[Tensor, "*batch M F"], allowed: Allowed, noise: StageNoise
    ) -> Selected:
        scores = self.select(features, self.rules.tensor("embedding"))
        kept = drop_scores(scores, noise.drop, self.dropout)
        primary, rule = select_pair(kept, allowed.pairs(), noise.choices[0], self.temperature)
        return Selected(primary, rule, scores)

    def bind_context(
        self,
        features: Float[Tensor, "*batch M F"],
        primary: Float[Tensor, "*batch M"],
        allowed: Allowed,
        noise: StageNoise,
    ) -> Bound:
        at_primary = primary.unsqueeze(-2)
        scores = self.bind(pick(at_primary, features), features)
        kept = drop_scores(scores, noise.drop_context, self.context_dropout)
        others = allowed.contexts(features.shape[-2], self.self_context, features.device)
        if others is not None:  # the row of the primary slot
            others = ((at_primary.detach() > 0).mT & others).any(-2, keepdim=True)
        return Bound(bind_contexts(kept, others, noise.choices[-1], self.temperature), scores)

    def apply_rule(
        self,
        slots: Float[Tensor, "*batch M *slot"],
        primary: Float[Tensor, "*batch M"],
        rule: Float[Tensor, "*batch 1 N"],
        context: Float[Tensor, "*batch 1 M"],
    ) -> Float[Tensor, "*batch M *slot"]:
        events = self.rules.event_dims
        primary_slot = pick(primary.unsqueeze(-2), slots, events)
        update = self._update(primary_slot, context, slots, rule)
        return residual(slots, primary, update, events)

    def log_prior(
        self, features: Float[Tensor, "*batch M F"], allowed: Allowed
    ) -> Float[Tensor, "*batch M N M"]:
        pairs = self.log_pairs(features, allowed).unsqueeze(-1)
        return pairs + self.log_contexts(features, allowed).unsqueeze(-2)

    def log_pairs(
        self, features: Float[Tensor, "*batch M F"], allowed: Allowed
    ) -> Float[Tensor, "*batch M N"]:
        """Log-probability of each pair of slot and rule."""
        scores = self.select(features, self.rules.tensor("embedding"))
        pairs = allowed.pairs()
        if pairs is not None:
            pairs = pairs.expand_as(scores).flatten(-2)
        return log_shares(scores.flatten(-2), pairs, self.temperature).view_as(scores)

    def _choices(self, m: int) -> list[tuple[int, ...]]:
        return [(m * len(self.rules),), (1, m)]
