"""Who wins a stage, as a differentiable function of one slot, and how close the others came.

A `Decision` is that of one slot: in sequential NPS which pair of slot and rule wins the stage, in
parallel NPS which rule, or the null rule, takes this slot. Its margins are what the winner is ahead
of each rival by; the choice flips when one of them falls below zero. They are linear in the slot
where selection is linear, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.inspect.playback import Call
from nps.rules import (
    AdaptiveNPS,
    GatedNPS,
    GatedParallelNPS,
    ParallelNPS,
    RuleLayer,
    SequentialNPS,
)
from nps.rules.allowed import Allowed
from nps.rules.choice import hard_choice
from nps.rules.config import MAX_HANDICAP

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

NULL = -1


class Choice(NamedTuple):
    """A slot and the rule that changes it; a rule of -1 is the null rule, which changes nothing."""

    slot: int
    rule: int
    score: float


def same(one: Choice, other: Choice) -> bool:
    """Whether two choices do the same: the null rule does wherever it wins."""
    return one.rule == other.rule and (one.rule == NULL or one.slot == other.slot)


class Margins(NamedTuple):
    """What the winner is ahead of each rival by."""

    value: Float[Tensor, "R"]
    rivals: Int[Tensor, "R 2"]
    """Slot and rule of each."""


class Scored(NamedTuple):
    """The scores of a stage, without noise."""

    rule: Float[Tensor, "M N"]
    allowed: Bool[Tensor, "M N"]
    bids: Float[Tensor, "M 2"] | None
    """Of the rules and of the null rule; None if there is none."""


class Decision:
    """What a stage decides about one slot.

    Args:
        layer: in evaluation mode.
        call: what it was given besides its slots.
        slots: those that the stage read.
        slot: the one in question.
    """

    def __init__(
        self, layer: RuleLayer, call: Call, slots: Float[Tensor, "M *slot"], slot: int
    ) -> None:
        self.layer, self.call, self.slots, self.slot = layer, call, slots, slot
        self.one_pair = isinstance(layer, SequentialNPS)
        given = call.selection
        self.selection = given.reshape(len(slots), -1) if isinstance(given, Tensor) else None
        """What selection sees, if that does not depend on the slots."""

    @property
    def known(self) -> bool:
        """Whether scores decide: not in layers of other kinds, such as a router."""
        return isinstance(self.layer, (SequentialNPS, ParallelNPS))

    @property
    def seen(self) -> Float[Tensor, "S"]:
        """The numbers on which the choice depends: the slot's, or those of its selection."""
        rows = self.slots if self.selection is None else self.selection
        return rows[self.slot].flatten()

    def scored(self, seen: Float[Tensor, "S"]) -> Scored:
        """The scores, had the slot these numbers."""
        layer, features = self.layer, self._features(seen)
        allowed = Allowed(self.call.slot_mask, self.call.rules)
        bids = None
        if isinstance(layer, AdaptiveNPS):
            scores = layer.select(features, layer.rules.tensor("embedding"))
        elif isinstance(layer, GatedParallelNPS):
            scores = layer.select(features, layer.rules.tensor("embedding"))
            scores = scores + self._in_context(features, allowed) - layer.null_score
        elif isinstance(layer, ParallelNPS):
            scores = layer.select(features, layer.rules.tensor("embedding"))
            bids = layer.bids(features)[0] if layer.null_handicap < MAX_HANDICAP else None
        else:
            noise = next(iter(layer._shares(features.shape[-2]).of_stages(None)))
            scores = layer.select_rule(features, allowed, noise).scores  # type: ignore[operator]
        scores = scores[0]
        pairs = allowed.pairs()
        may = scores.isfinite() if pairs is None else pairs.expand_as(scores) & scores.isfinite()
        if isinstance(layer, AdaptiveNPS):
            bids = self._worth(layer, seen, features, allowed, may.any(-1))
        elif isinstance(layer, GatedParallelNPS):
            best = scores.masked_fill(~may, -torch.inf).amax(-1)
            bids = torch.stack([best, torch.zeros_like(best)], -1)
        elif isinstance(layer, GatedNPS):
            best = scores.masked_fill(~may, -torch.inf).amax()
            bids = torch.stack([best, layer.null_score.to(best)]).expand(len(scores), 2)
        return Scored(scores, may, bids)

    def _worth(
        self,
        layer: AdaptiveNPS,
        seen: Float[Tensor, "S"],
        features: Float[Tensor, "1 M F"],
        allowed: Allowed,
        able: Bool[Tensor, "M"],
    ) -> Float[Tensor, "M 2"]:
        """What each update is worth, and what it has to be worth."""
        slots = self.slots if self.selection is not None else self._with(seen)
        others = allowed.contexts(len(slots), layer.self_context, slots.device)
        context = hard_choice(layer.bind(features, features).detach(), allowed=others)[0]
        worth = layer.worth_of(slots, features[0], context)
        return torch.stack([worth, layer.threshold(worth, able.to(worth.dtype))], -1)

    def _with(self, seen: Float[Tensor, "S"]) -> Float[Tensor, "M *slot"]:
        """The slots, had the one in question these numbers."""
        here = torch.arange(len(self.slots), device=seen.device) == self.slot
        shape = [-1, *[1] * (self.slots.dim() - 1)]
        return torch.where(here.view(shape), seen.view(self.slots.shape[1:]), self.slots)

    def _features(self, seen: Float[Tensor, "S"]) -> Float[Tensor, "1 M F"]:
        if self.selection is not None:
            here = torch.arange(len(self.slots), device=seen.device) == self.slot
            return torch.where(here.unsqueeze(-1), seen, self.selection).unsqueeze(0)
        given = self.call.selection, self.call.slot_mask
        return self.layer._features(self._with(seen).unsqueeze(0), *given)

    def _in_context(
        self, features: Float[Tensor, "1 M F"], allowed: Allowed
    ) -> Float[Tensor, "1 M 1"]:
        scores = self.layer.bind(features, features)
        others = allowed.contexts(features.shape[-2], self.layer.self_context, features.device)
        chosen = hard_choice(scores.detach(), allowed=others)
        return torch.sum(chosen * scores, -1, keepdim=True)

    # -- who wins -----------------------------------------------------------------------------

    def winner(self, scored: Scored) -> Choice | None:
        """Who wins, by the scores alone; None if nothing is allowed."""
        scores = scored.rule.detach().masked_fill(~scored.allowed, -torch.inf)
        if self.one_pair:
            best = int(scores.argmax())
            slot, rule = divmod(best, scores.shape[-1])
        else:
            slot, rule = self.slot, int(scores[self.slot].argmax())
        if not bool(scored.allowed[slot, rule]):
            return None
        if scored.bids is not None:
            won, null = scored.bids[slot].tolist()
            if not won >= null:  # as argmax does: the first of equals
                return Choice(slot, NULL, null)
        return Choice(slot, rule, float(scores[slot, rule]))

    def margins(self, scored: Scored, winner: Choice) -> Margins:
        """Of the winner over every rival."""
        scores, bids = scored.rule, scored.bids
        others = scored.allowed
        if not self.one_pair:
            here = torch.arange(len(scores), device=scores.device) == self.slot
            others = others & here.unsqueeze(-1)
        if winner.rule == NULL:
            assert bids is not None
            if self.one_pair:
                return _of_pairs(bids[0, 1] - scores, others)
            best = scores[self.slot].masked_fill(~others[self.slot], -torch.inf).argmax()
            rival = torch.stack([torch.full_like(best, self.slot), best])
            return Margins((bids[self.slot, 1] - bids[self.slot, 0]).view(1), rival.view(1, 2))
        own = scores[winner.slot, winner.rule]
        others = others.clone()
        others[winner.slot, winner.rule] = False
        found = _of_pairs(own - scores, others)
        if bids is None:
            return found
        won = own if self.one_pair else bids[winner.slot, 0]  # a pair itself has to beat the null
        ahead, null = won - bids[winner.slot, 1], found.rivals.new_tensor([[winner.slot, NULL]])
        return Margins(torch.cat([ahead.view(1), found.value]), torch.cat([null, found.rivals]))

    def margin_function(self, winner: Choice) -> Callable[[Tensor], Margins]:
        return lambda seen: self.margins(self.scored(seen), winner)


def _of_pairs(ahead: Float[Tensor, "M N"], which: Bool[Tensor, "M N"]) -> Margins:
    return Margins(ahead[which], torch.nonzero(which))
