"""The smallest change (L2) of a slot that flips a choice.

Where margins are linear, the distance to a rival is margin / |gradient|, in closed form. Elsewhere
the margin is linearised again and again, as DeepFool does (Moosavi-Dezfooli et al., 2016), until
the choice flips; from there the nearest point of the boundary is looked for in the same way. What
is returned was tried: it does flip, and a slightly shorter change in its direction does not. Where
a network decides (`AdaptiveNPS`), a nearer flip may be missed, and rarely all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.inspect.decisions import Choice, Decision, Margins, same

if TYPE_CHECKING:
    from jaxtyping import Float, Int

NEAREST = 6
"""Rivals that are tried, those first that are nearest by the first linearisation."""
STEPS, REFINEMENTS, HALVINGS = 30, 6, 10
OVERSHOOT = 1e-3
"""By which share a change goes beyond the boundary that was computed."""
LEAST = 1e-6
"""Margin that is overcome at least, so that a tie is broken in spite of rounding."""


class Change(NamedTuple):
    """A change that flips a choice."""

    change: Float[Tensor, "S"]
    winner: Choice
    """Who wins then."""


def smallest_change(decision: Decision, winner: Choice, free: int | None = None) -> Change | None:
    """The smallest change of the slot that lets somebody else win; None if none was found.

    Args:
        decision: that `winner` wins.
        winner: by the scores.
        free: how many of the slot's first numbers may change (default: all); of world models, those
            that are not the action.
    """
    search = _Search(decision, winner, free)
    margins, gradients = search.linearised(search.begin.new_zeros(len(search.begin)))
    distance = torch.nan_to_num(margins.value / gradients.norm(dim=1), nan=torch.inf)
    best: Tensor | None = None
    for i in distance.argsort()[:NEAREST].tolist():
        far = float(distance[i])
        if far == torch.inf or (best is not None and far * search.slack > float(best.norm())):
            break
        found = search.towards(margins.rivals[i], _step(margins.value[i], gradients[i]))
        if found is not None and (best is None or found.norm() < best.norm()):
            best = found
    if best is None:
        return None
    new = search.after(best)
    assert new is not None
    return Change(best, new)


class _Search:
    """Points at which a choice flips, around where it is made."""

    def __init__(self, decision: Decision, winner: Choice, free: int | None) -> None:
        self.decision, self.winner, self.free = decision, winner, free
        self.begin = decision.seen.detach()
        self.slack = 1.0
        """How much nearer a rival may be than its first linearisation says; 1 if that is exact."""

    def after(self, change: Float[Tensor, "S"]) -> Choice | None:
        """Who wins after a change."""
        return self.decision.winner(self.decision.scored(self.begin + change))

    def flips(self, change: Float[Tensor, "S"]) -> bool:
        new = self.after(change)
        return new is not None and not same(new, self.winner)

    def linearised(
        self, change: Float[Tensor, "S"], rival: Int[Tensor, "2"] | None = None
    ) -> tuple[Margins, Float[Tensor, "R S"]]:
        """The margins (or that over one rival) and their gradients, zero where nothing may change.

        Of a slot that the null rule won, the rival is whichever rule would come next.
        """
        with torch.enable_grad():
            point = (self.begin + change).requires_grad_()
            margins = self.decision.margins(self.decision.scored(point), self.winner)
            if rival is not None:
                one = (margins.rivals == rival).all(-1)
                one = one if bool(one.any()) else torch.arange(len(one), device=one.device) == 0
                margins = Margins(margins.value[one], margins.rivals[one])
            count = len(margins.value)
            if not count or not margins.value.requires_grad:
                gradients = point.new_zeros(count, len(point))
            else:
                each = torch.eye(count, dtype=margins.value.dtype, device=point.device)
                gradients = torch.autograd.grad(margins.value, point, each, is_grads_batched=True)[
                    0
                ]
        gradients = gradients.detach()
        if self.free is not None:
            inside = torch.arange(len(point), device=point.device) < self.free
            gradients = gradients * inside
        return Margins(margins.value.detach(), margins.rivals), gradients

    def towards(
        self, rival: Int[Tensor, "2"], first: Float[Tensor, "S"]
    ) -> Float[Tensor, "S"] | None:
        """A short change that lets this rival, or somebody on the way, win.

        Args:
            rival: slot and rule.
            first: the change to where they draw level, if margins are linear.
        """
        change = (1.0 + OVERSHOOT) * first
        if self.flips(change) and not self.flips((1.0 - OVERSHOOT) * first):
            if self.slack == 1.0:
                return change
        else:
            self.slack = 0.5
        for _ in range(STEPS):
            if self.flips(change):
                return self._nearer(rival, self._shortened(change))
            margins, gradients = self.linearised(change, rival)
            ahead = margins.value[0].clamp(min=LEAST)
            change = change + (1.0 + OVERSHOOT) * _step(ahead, gradients[0])
            if not bool(change.isfinite().all()):
                return None
        return None

    def _nearer(self, rival: Int[Tensor, "2"], change: Float[Tensor, "S"]) -> Float[Tensor, "S"]:
        """Follow the boundary to where it is nearest, as far as it is smooth."""
        for _ in range(REFINEMENTS):
            margins, gradients = self.linearised(change, rival)
            # Linear from here: of that boundary, the point that is nearest to where it began.
            foot = _step(margins.value[0] - gradients[0] @ change, gradients[0])
            for share in (1.0, 0.5, 0.1):
                tried = (1.0 + OVERSHOOT) * torch.lerp(change, foot, share)
                if bool(tried.isfinite().all()) and self.flips(tried):
                    tried = self._shortened(tried)
                    if float(tried.norm()) < (1.0 - OVERSHOOT) * float(change.norm()):
                        change = tried
                        break
            else:
                return change
        return change

    def _shortened(self, change: Float[Tensor, "S"]) -> Float[Tensor, "S"]:
        """The part of a change that just flips."""
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.flips(middle * change) else (middle, high)
        return high * change


def _step(margin: Float[Tensor, ""], gradient: Float[Tensor, "S"]) -> Float[Tensor, "S"]:
    """The shortest change that makes a linear margin zero."""
    return -margin * gradient / gradient.square().sum()
