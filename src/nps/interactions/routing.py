"""The paper's baseline for coordinate arithmetic: a routing MLP in place of slots × rules.

Appendix "Coordinate Arithmetic Task": a 4-layer MLP of width 32 reads all slots at once, and three
linear heads choose the primary slot, the contextual slot and the rule. The rules' MLPs and the
hard choices are those of NPS; only the selection differs. The call is that of the rule layers,
for a fixed number of slots; like any MLP it is not equivariant to their order.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Unpack

from torch import Tensor, nn

from nps.rules.allowed import Allowed
from nps.rules.check import require_int
from nps.rules.choice import hard_choice
from nps.rules.config import Query
from nps.rules.layer import RuleLayer
from nps.rules.noise import StageNoise
from nps.rules.projection import Factory, reset_linear
from nps.rules.ruleset import RuleSet
from nps.rules.slots import pick, residual
from nps.rules.trace import Choices

if TYPE_CHECKING:
    from jaxtyping import Float


class Routing(RuleLayer):
    """One (rule, primary slot, context) triple per stage, chosen by an MLP over all slots.

    Args:
        slot_dim, num_rules, stages, hidden_dim, hidden_layers, temperature, selection_dim, rules:
            as for `SequentialNPS`. Settings of keys and queries in a `RuleConfig` are ignored.
        num_slots: M, fixed.
        width: of the routing MLP (paper: 32).
        depth: its layers (paper: 4).
        noisy: choose with Gumbel noise in training as NPS does; False takes the argmax, as the
            Switch Transformer that the paper names does. A Switch also scales its output by the
            probability of the choice; here that would leak the true output, which the router has
            seen, to the rules, so the gradient is straight-through instead.

    Shapes: slots (..., M, D) -> (..., M, D).
    """

    unused = RuleLayer.unused | {
        "rule_dim", "key_dim", "query", "context_query", "dropout", "context_dropout",
        "self_context", "context_gradient", "kernel_size", "zero_start",
    }  # fmt: skip

    def __init__(
        self,
        slot_dim: int,
        num_rules: int,
        *,
        num_slots: int,
        width: int = 32,
        depth: int = 4,
        noisy: bool = False,
        stages: int = 1,
        hidden_dim: int = 128,
        hidden_layers: int = 1,
        temperature: float = 1.0,
        selection_dim: int | None = None,
        rules: RuleSet | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        require_int("num_slots", num_slots, at_least=1)
        require_int("width", width, at_least=1)
        require_int("depth", depth, at_least=1)
        self._router_shape = (num_slots, width, depth)
        super().__init__(
            slot_dim,
            num_rules,
            stages=stages,
            rule_dim=1,
            hidden_dim=hidden_dim,
            hidden_layers=hidden_layers,
            temperature=temperature,
            selection_dim=selection_dim,
            rules=rules,
            **factory,
        )
        self.noisy = noisy
        # The router chooses by number: rules have no condition of their own.
        self.rules.embedding.requires_grad_(False)

    def _make_selection(
        self, key_dim: int, query: Query, context_query: Query, **factory: Unpack[Factory]
    ) -> None:
        m, width, depth = self._router_shape
        sizes = [m * self.selection_dim, *[width] * depth]
        layers: list[nn.Module] = []
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [nn.Linear(size_in, size_out, **factory), nn.ReLU()]
        self.router = nn.Sequential(*layers)
        self.primary_head = nn.Linear(width, m, **factory)
        self.context_head = nn.Linear(width, m, **factory)
        self.rule_head = nn.Linear(width, len(self.rules), **factory)

    def _reset_selection(self) -> None:
        reset_linear(self.router, self.primary_head, self.context_head, self.rule_head)

    def _choices(self, m: int) -> list[tuple[int, ...]]:
        return [(m,), (m,), (len(self.rules),)]

    def stage(
        self,
        slots: Float[Tensor, "*batch M D"],
        features: Float[Tensor, "*batch M F"],
        allowed: Allowed,
        noise: StageNoise,
    ) -> tuple[Tensor, Choices]:
        m = self._router_shape[0]
        if features.shape[-2] != m or allowed.slots is not None:
            got = f"{features.shape[-2]} slots" if allowed.slots is None else "a slot_mask"
            raise ValueError(f"slots: got {got}, expected all of num_slots = {m} slots")
        if len(self.rules) != self.rule_head.out_features:
            raise ValueError(
                f"rules: got {len(self.rules)}, expected the {self.rule_head.out_features} that "
                "the router was built for (they can be disabled, not added or removed)"
            )
        routed = self.router(features.flatten(-2).to(self.rule_head.weight.dtype))
        heads = (self.primary_head, self.context_head, self.rule_head)
        scores = [head(routed) for head in heads]
        noises = noise.choices if self.noisy else [None, None, None]
        primary, context, rule = (
            hard_choice(score, allowed=may, noise=each, temperature=self.temperature)
            for score, may, each in zip(scores, [None, None, allowed.rules], noises, strict=True)
        )
        primary = primary * rule.detach().sum(-1, keepdim=True)  # no rule allowed: no primary slot
        acting, other = (pick(choice.unsqueeze(-2), slots) for choice in (primary, context))
        update = self._act(acting, other, rule.unsqueeze(-2))
        slots = residual(slots, primary, update)
        # The router's rule scores are the same whichever slot is primary.
        rule_scores = scores[2].unsqueeze(-2).expand(*scores[2].shape[:-1], m, -1)
        return slots, Choices(
            primary, rule.unsqueeze(-2), context.unsqueeze(-2), rule_scores, scores[1].unsqueeze(-2)
        )
