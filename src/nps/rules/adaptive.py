"""A layer that decides by itself how many slots fire: none, one, or all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.rules.allowed import Allowed
from nps.rules.check import require_number, require_type
from nps.rules.choice import NOT_ALLOWED
from nps.rules.config import Query
from nps.rules.construction import ConfiguredLayer, LayerOptions
from nps.rules.gated import GatedParallelNPS
from nps.rules.inputs import Selection
from nps.rules.noise import Noise, StageNoise
from nps.rules.projection import Factory, exact, reset_linear
from nps.rules.slots import pick
from nps.rules.trace import Choices

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

WIDTH = 128


class AdaptiveNPS(GatedParallelNPS):
    r"""Parallel NPS that fires only where it pays.

    Every slot picks a rule and a context (steps 3 and 4 of Algorithm 2). A small network then reads
    both slots (and what selection sees of them) and says whether the update is worth it. In
    evaluation the others do not fire:

    .. math::
        P = \{ p : \mathrm{worth}(V_p, V_{c_p}) > 0 \}, \qquad
        V_p \leftarrow V_p + \mathrm{MLP}_{r_p}([V_p, V_{c_p}]) \quad \forall p \in P

    In Algorithm 2 the null rule competes while rules are still wrong, wins, and a slot that no rule
    changes teaches them nothing. It also decides before the slot has looked at any other. Here **in
    training every slot fires** (`propose`), and its worth is learned beside it, from how much the
    update helped (`worth_loss`). A price says how much it has to help.

    Both algorithms are its ends: with `most=1` at most one slot fires in a stage, as in Algorithm
    1; with a price of minus infinity all of them do.

    It takes the arguments of `SequentialNPS`, for slots that are vectors, its own steps (no
    kernels), and one more:

    Args:
        most: how many slots may fire in a stage, in evaluation: those whose updates are worth most.
            None: no limit. It can be changed at any time.

    Shapes: slots (..., M, D) -> (..., M, D).

    Example::

        layer = AdaptiveNPS(slot_dim=8, num_rules=4, query="mlp", context_gradient="update")
        slots, target = torch.randn(2, 32, 5, 8)
        new, worth = layer.propose(slots)  # in training; else layer(slots)
        fired, kept = ((x - target).square().sum(-1) for x in (new, slots))
        (fired + worth_loss(worth, fired, kept, price=0.01)).sum(-1).mean().backward()
    """

    unused = frozenset({"null_handicap"})

    def __init__(
        self,
        slot_dim: int,
        num_rules: int,
        *,
        most: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(slot_dim, num_rules, **options)
        self._config = replace(self._config, most=most)  # checks it
        if self.rules.event_dims != 1:
            raise ValueError("rules: got feature maps, expected slots that are vectors")
        self.most = most

    def _make_selection(
        self, key_dim: int, query: Query, context_query: Query, **factory: Unpack[Factory]
    ) -> None:
        ConfiguredLayer._make_selection(self, key_dim, query, context_query, **factory)
        self.worth_network = nn.Sequential(
            nn.Linear(2 * (self.slot_dim + self.selection_dim), WIDTH, **factory),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH, **factory),
            nn.ReLU(),
            nn.Linear(WIDTH, 1, **factory),
        )
        self._start_by_firing()

    def _reset_selection(self) -> None:
        ConfiguredLayer._reset_selection(self)
        reset_linear(self.worth_network)
        self._start_by_firing()

    def _start_by_firing(self) -> None:
        """A layer that was never told what updates are worth fires everywhere."""
        weight, bias = self.worth_network[-1].parameters()
        nn.init.zeros_(weight)
        nn.init.ones_(bias)

    def stage(
        self, slots: Tensor, features: Tensor, allowed: Allowed, noise: StageNoise
    ) -> tuple[Tensor, Choices]:
        # Steps 2 and 3: a rule for each slot. Step 4: a context.
        primary, rule, rule_scores = self.select_rule(features, allowed, noise)
        context, context_scores = self.bind_context(features, primary, allowed, noise)
        if not self.training:
            worth = self.worth_of(slots, features, context)
            primary = primary * (worth > self.threshold(worth, primary)).to(primary.dtype)
        # Step 5: all slots whose update is worth it change at once.
        slots = self.apply_rule(slots, primary, rule, context)
        return slots, Choices(primary, rule, context, rule_scores, context_scores)

    def propose(
        self,
        slots: Float[Tensor, "*batch M D"],
        *,
        selection: Selection | None = None,
        slot_mask: Bool[Tensor, "*batch M"] | None = None,
        noise: Noise | None = None,
    ) -> tuple[Float[Tensor, "*batch M D"], Float[Tensor, "*batch M"]]:
        """What one stage would make of every slot, and what that is worth, to learn from.

        In training mode choices have noise; in evaluation mode they are those of a call.

        Args:
            slots, selection, slot_mask, noise: as for the call.

        Returns:
            All slots after their updates, (..., M, D), and their worth, (..., M): above zero, a
            call in evaluation mode fires.
        """
        if self.stages != 1:
            raise ValueError(f"stages: got {self.stages}, expected 1 for propose")
        given, slots = slots, self._checked(slots, slot_mask)
        shares, batch = self._shares(slots.shape[-2]), slots.shape[:-2]
        uniform = shares.uniform(noise, batch, slots.device) if self.training else None
        (of_stage,) = shares.of_stages(uniform)
        allowed = Allowed(slot_mask, self.rules.allowed())
        features = self._features(slots, selection, slot_mask)
        primary, rule, _ = self.select_rule(features, allowed, of_stage)
        context, _ = self.bind_context(features, primary, allowed, of_stage)
        new = self.apply_rule(slots, primary, rule, context)
        if slot_mask is not None:
            new = torch.where(slot_mask.unsqueeze(-1), new, given)
        # Learning what updates are worth changes neither slots nor contexts.
        return new, self.worth_of(slots.detach(), features.detach(), context.detach())

    def worth_of(
        self,
        slots: Float[Tensor, "*batch M D"],
        features: Float[Tensor, "*batch M F"],
        context: Float[Tensor, "*batch M M"],
    ) -> Float[Tensor, "*batch M"]:
        """What the updates of all slots in these contexts are worth; above zero they fire.

        It reads what rules and what selection see of both slots.
        """
        kind = self.rules.embedding.dtype
        own = torch.cat([slots.to(kind), features.to(kind)], -1)
        pair = torch.cat([own, pick(context, own)], -1)
        with torch.autocast(slots.device.type, enabled=False):
            worth: Tensor = self.worth_network(pair)
        return exact(worth.squeeze(-1))

    def threshold(
        self, worth: Float[Tensor, "*batch M"], able: Float[Tensor, "*batch M"]
    ) -> Float[Tensor, "*batch M"]:
        """Slots worth more than this fire: than 0 and, with a limit, than all but a few others."""
        if self.most is None or self.most >= worth.shape[-1]:
            return torch.zeros_like(worth)
        ranked = torch.where(able > 0, worth, NOT_ALLOWED).topk(self.most + 1, -1).values
        last, next_one = ranked[..., -2:-1], ranked[..., -1:]
        return torch.where(worth >= last, next_one, last).clamp(min=0.0)


def worth_loss(
    worth: Float[Tensor, "*batch M"],
    fired: Float[Tensor, "*batch M"],
    kept: Float[Tensor, "*batch M"],
    price: float | Tensor = 0.0,
) -> Float[Tensor, "*batch M"]:
    r"""Teaches an `AdaptiveNPS` what updates are worth: whether each helped by more than a price.

    .. math::
        \mathrm{BCE}\big(\mathrm{worth},\; [\ell_{kept} - \ell_{fired} > \mathrm{price}]\big)

    It has no gradient to rules, selection or slots, so that they learn as if it were not there.
    Where something besides rules changes a slot, such as its own dynamics, also minimise `kept`:
    otherwise the rules do part of what it could do alone, and fire everywhere.

    Args:
        worth: from `AdaptiveNPS.propose`, (..., M).
        fired: the loss of each slot after its update, (..., M).
        kept: the loss of each slot if it had been kept as it was, (..., M).
        price: by how much an update has to lower the loss of its slot.

    Returns:
        The loss of each slot: (..., M).
    """
    for name, tensor in {"worth": worth, "fired": fired, "kept": kept}.items():
        require_type(name, tensor, Tensor, "a tensor")
        if tensor.shape != worth.shape:
            raise ValueError(
                f"{name}: got shape {tuple(tensor.shape)}, expected {tuple(worth.shape)}, "
                "that of worth"
            )
    if not isinstance(price, Tensor):
        require_number("price", price, -float("inf"), float("inf"), open_top=True)
    helped = (kept - fired).detach() > price
    return F.binary_cross_entropy_with_logits(worth, helped.to(worth.dtype), reduction="none")
