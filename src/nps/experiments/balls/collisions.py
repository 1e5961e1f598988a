"""Do rules fire when balls collide, and is the context of the one the other?

The trace of a prediction says which slot a rule changed, and which slot was its context. With the
slot of each ball (of the whole video's segments), that is a statement of who bumped whom, which can
be right or wrong. Attention makes no such statement; its largest weight on another slot is read as
one, for comparison.

Where a rule fires in every frame, most of what it says is of no importance: it changes next to
nothing. So statements are also counted that come with a large change alone; how large is chosen on
validation scenes (`best_threshold`).

Everything is counted for each scene; `rates` makes numbers of the sums over scenes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nps.experiments.balls.measures import Measured
from nps.rules import Trace

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int64

PREFIX = "count_"
"""Before the names of counts, which are summed over scenes where other numbers are averaged."""


class Statements(NamedTuple):
    """Who changed whom, as told; and who hit whom."""

    told: Bool[Tensor, "B T M M"]
    """[i, j]: ball j was the context of ball i."""
    strength: Float[Tensor, "B T M"]
    """How much ball i was changed."""
    collided: Bool[Tensor, "B T M M"]

    def flat(self) -> tuple[Float[Tensor, "n"], Bool[Tensor, "n"], Int64[Tensor, "1"]]:
        """Strength and truth of each statement, and the number of (ordered) pairs that collided."""
        told = self.told & ~torch.eye(
            self.told.shape[-1], dtype=torch.bool, device=self.told.device
        )
        strength = self.strength.unsqueeze(-1).expand(told.shape)[told]
        return strength, self.collided[told], self.collided.sum().unsqueeze(0)


def best_threshold(
    strength: Float[Tensor, "n"], true: Bool[Tensor, "n"], collided: int
) -> float | None:
    """The strength above which statements are best believed: with the largest F1 of all collisions;
    None if no statement is true."""
    if not len(strength) or not collided:
        return None
    ordered, order = strength.sort(descending=True)
    below = torch.cat([ordered[1:], ordered.new_zeros(1)])
    right = true[order].cumsum(0)
    told = torch.arange(1, len(order) + 1, device=order.device)
    f1 = torch.where(ordered > below, 2.0 * right / (told + collided), -1.0)  # not among equals
    best = f1.argmax()
    return float((ordered[best] + below[best]) / 2) if f1[best] > 0 else None


def count_loud(
    told: Bool[Tensor, "B T M M"],
    collided: Bool[Tensor, "B T M M"],
    present: Bool[Tensor, "B M"],
) -> Measured:
    """As `count_pairs`, of statements with a large change: which are true, and what they miss."""
    counted = count_pairs(told, collided, present)
    names = ("told", "told_true", "told_chance")
    kept = {f"{PREFIX}loud_{name}": counted[f"{PREFIX}{name}"] for name in names}
    return kept | {f"{PREFIX}ordered": collided.flatten(1).sum(1, dtype=torch.float)}


def chosen_contexts(trace: Trace) -> Bool[Tensor, "B T S S"]:
    """Row s: the slots that slot s had as its context, in any stage."""
    slots = trace.context.shape[-1]
    at = trace.context.unsqueeze(-1) == torch.arange(slots, device=trace.context.device)
    return at.any(-3)


def attended(weights: Float[Tensor, "B T S S"]) -> Bool[Tensor, "B T S S"]:
    """Row s: the other slot with the largest weight, unless it reads no other."""
    m = weights.shape[-1]
    own = torch.eye(m, dtype=torch.bool, device=weights.device)
    others = weights.masked_fill(own, 0.0)
    return F.one_hot(others.argmax(-1), m).bool() & (others > 0)


def of_balls(
    slots: Bool[Tensor, "B T S S"], slot_of_ball: Int64[Tensor, "B M"]
) -> Bool[Tensor, "B T M M"]:
    """From statements about slots to statements about the balls that they show."""
    b, t = slots.shape[:2]
    m = slot_of_ball.shape[1]
    at = slot_of_ball.clamp(min=0)[:, None, :, None].expand(b, t, m, slots.shape[-1])
    rows = slots.gather(2, at)
    pairs = rows.gather(3, slot_of_ball.clamp(min=0)[:, None, None].expand(b, t, m, m))
    known = slot_of_ball >= 0
    return pairs & (known.unsqueeze(-1) & known.unsqueeze(-2))[:, None]


def count_pairs(
    told: Bool[Tensor, "B T M M"],
    collided: Bool[Tensor, "B T M M"],
    present: Bool[Tensor, "B M"],
) -> Measured:
    """How often what is told about pairs of balls is true.

    Args:
        told: [i, j]: ball j was the context of ball i.
        collided: which balls hit each other in the same frame.
        present: which balls there are.
    """
    own = torch.eye(told.shape[-1], dtype=torch.bool, device=told.device)
    told = told & ~own & (present.unsqueeze(-1) & present.unsqueeze(-2))[:, None]
    others = (present.sum(-1) - 1).clamp(min=1)[:, None, None]
    chance = collided.sum(-1) / others  # that a random other ball is one it hits
    speaks, hit = told.any(-1), collided.any(-1)
    either = told | told.mT
    # A ball that names some of the others, drawn at random, misses one of them with this chance.
    missed = 1.0 - told.sum(-1) / others
    guessed = 1.0 - missed.unsqueeze(-1) * missed.unsqueeze(-2)
    counts = {
        "told": told,
        "told_true": told & collided,
        "told_chance": told.sum(-1) * chance,
        "pairs": collided.triu(1),
        "pairs_told": (either & collided).triu(1),
        "pairs_chance": (guessed * collided).triu(1),
        "asked": speaks & hit,
        "asked_true": (told & collided).sum(-1) / told.sum(-1).clamp(min=1),
        "asked_chance": torch.where(speaks & hit, chance, 0.0),
    }
    return {f"{PREFIX}{name}": x.flatten(1).sum(1, dtype=torch.float) for name, x in counts.items()}


def count_firing(
    trace: Trace,
    rules: int,
    slot_of_ball: Int64[Tensor, "B M"],
    collided: Bool[Tensor, "B T M M"],
    present: Bool[Tensor, "B M"],
) -> Measured:
    """How often each rule fires on balls that collide in this frame, and on others."""
    b, t, k, _ = trace.rule.shape
    at = slot_of_ball.clamp(min=0)[:, None, None].expand(b, t, k, -1)
    known = (slot_of_ball >= 0) & present
    rule = torch.where(known[:, None, None], trace.rule.gather(3, at), -1)
    fired = rule.unsqueeze(-1) == torch.arange(rules, device=rule.device)
    fired = fired.any(2)  # (B, T, M, N), in any stage
    hit = collided.any(-1) & known[:, None]
    free = ~collided.any(-1) & known[:, None]
    counted = {}
    for name, where in {"hit": hit, "free": free}.items():
        counted[f"{PREFIX}{name}"] = where.flatten(1).sum(1)
        counted[f"{PREFIX}{name}_fired"] = (fired.any(-1) & where).flatten(1).sum(1)
        counted[f"{PREFIX}{name}_rules"] = (fired & where.unsqueeze(-1)).sum((1, 2))
    return counted


class Reading(NamedTuple):
    """How traces are read, chosen on validation scenes."""

    loud: float | None
    """How large a change is that tells of a collision."""
    rule: int | None
    """The rule that fires most at collisions, compared with elsewhere."""


def collision_rule(measured: Measured) -> int | None:
    """Of scenes in which firing was counted; None if there are no collisions, or no rules."""
    if f"{PREFIX}hit_rules" not in measured:
        return None
    hit, free, hit_rules, free_rules = (
        measured[f"{PREFIX}{name}"].double().sum(0)
        for name in ("hit", "free", "hit_rules", "free_rules")
    )
    return int((hit_rules / hit - free_rules / free).argmax()) if hit > 0 and free > 0 else None


def rates(measured: Measured, rule: int | None = None) -> dict[str, Any]:
    """Metrics from the counts of all scenes; those without a single case are left out.

    `rule`: of which to report apart how often it fires at collisions.
    """
    sums = {
        name.removeprefix(PREFIX): values.double().sum(0)
        for name, values in measured.items()
        if name.startswith(PREFIX)
    }
    found: dict[str, Any] = {}
    shares = {
        "pair_precision": ("told_true", "told"),
        "pair_precision_chance": ("told_chance", "told"),
        "pair_recall": ("pairs_told", "pairs"),
        "pair_recall_chance": ("pairs_chance", "pairs"),
        "partner": ("asked_true", "asked"),
        "partner_chance": ("asked_chance", "asked"),
        "who_precision": ("loud_told_true", "loud_told"),
        "who_precision_chance": ("loud_told_chance", "loud_told"),
        "who_recall": ("loud_told_true", "ordered"),
        "who_recall_chance": ("loud_told_chance", "ordered"),
        "firing_collision": ("hit_fired", "hit"),
        "firing_elsewhere": ("free_fired", "free"),
    }
    for name, (part, whole) in shares.items():
        if part in sums and sums[whole] > 0:
            found[name] = (sums[part] / sums[whole]).item()
    if "ordered" in sums and sums["loud_told"] + sums["ordered"] > 0:
        for name, right in {
            "who_f1": "loud_told_true",
            "who_f1_chance": "loud_told_chance",
        }.items():
            found[name] = (2.0 * sums[right] / (sums["loud_told"] + sums["ordered"])).item()
    if "hit_rules" in sums and sums["hit"] > 0 and sums["free"] > 0:
        near, far = sums["hit_rules"] / sums["hit"], sums["free_rules"] / sums["free"]
        if rule is not None:
            found |= {"collision_rule": rule, "collision_rule_collision": near[rule].item()}
            found |= {"collision_rule_elsewhere": far[rule].item()}
        found["firing_table"] = torch.stack([near, far]).tolist()
    return found
