"""What rules of falling towers say: who holds whom, and which rule is used on which shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.rules import Trace
from nps.worlds.stacks import KINDS, Episodes

if TYPE_CHECKING:
    from jaxtyping import Float

MOVING = 0.01
"""Way of a shape in a frame, in units of the world, above which it counts as moving."""

Measured = dict[str, Tensor]
"""An entry for each episode."""


def measure(trace: Trace, episodes: Episodes, frames: int) -> Measured:
    return holds(trace, episodes, frames) | fires(trace, episodes) | uses(trace, episodes)


def holds(trace: Trace, episodes: Episodes, frames: int) -> Measured:
    """Is the context of a moving shape one that it touches? Counted at the last stage in which the
    shape was changed, for shapes that touch another one."""
    place, touched = episodes.position[:, : frames + 1], episodes.touched[:, 1 : frames + 1]
    moves = (place[:, 1:] - place[:, :-1]).norm(dim=-1) > MOVING
    context = trace.context[:, :, 0]
    for stage in range(1, trace.context.shape[2]):
        later = trace.context[:, :, stage]
        context = torch.where(later >= 0, later, context)
    m = context.shape[-1]
    others = (context >= 0) & (context != torch.arange(m, device=context.device))
    asked = others & moves & touched.any(-1)
    right = touched.gather(-1, context.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    chance = touched.float().sum(-1) / (m - 1)
    return {
        "count_asked": asked.sum((1, 2)),
        "count_right": (asked & right).sum((1, 2)),
        "count_chance": (asked * chance).sum((1, 2)),
    }


def fires(trace: Trace, episodes: Episodes) -> Measured:
    """How often a rule fires on each level of the tower, and on each kind of shape."""
    fired = trace.fired.any(2).float().mean(1)  # (B, M)
    found = {f"fires_level_{i}": fired[:, i] for i in range(fired.shape[1])}
    for number, kind in enumerate(KINDS):
        own = (episodes.kind == number).to(fired.dtype)
        found[f"count_{kind}"], found[f"count_fires_{kind}"] = own.sum(1), (own * fired).sum(1)
    return found


def uses(trace: Trace, episodes: Episodes) -> Measured:
    """How often each rule, or the null rule, is used on each level and each kind of shape."""
    found: Measured = {}
    kind = episodes.kind.unsqueeze(1)  # (B, 1, M)
    for number in range(-1, trace.rule_scores.shape[-1]):
        on = (trace.rule == number).any(2) if number >= 0 else ~trace.fired.any(2)  # (B, T, M)
        name = f"count_use_{'null' if number < 0 else number}"
        found |= {f"{name}_level_{i}": on[..., i].sum(1) for i in range(on.shape[-1])}
        found |= {f"{name}_{x}": (on & (kind == i)).sum((1, 2)) for i, x in enumerate(KINDS)}
    return found


def told(counts: Float[Tensor, "rules groups"]) -> float:
    """How much a group tells about the rule that is used: 1 if everything, 0 if nothing, or if one
    rule is always used. Mutual information over the entropy of the rules."""
    joint = counts.double() / counts.sum()
    rules, groups = joint.sum(1), joint.sum(0)
    entropy = -torch.special.xlogy(rules, rules).sum()
    if entropy < 1e-9:
        return 0.0
    apart = torch.special.xlogy(joint, joint) - torch.special.xlogy(joint, rules[:, None] * groups)
    return float(apart.sum() / entropy)


def summary(sums: dict[str, float]) -> dict[str, float]:
    """Shares, from counts summed over episodes."""
    metrics: dict[str, float] = {}
    if sums.get("count_asked"):
        metrics["held"] = sums["count_right"] / sums["count_asked"]
        metrics["held_chance"] = sums["count_chance"] / sums["count_asked"]
    for kind in KINDS:
        if sums.get(f"count_{kind}"):
            metrics[f"fires_{kind}"] = sums[f"count_fires_{kind}"] / sums[f"count_{kind}"]
    used = {name.removeprefix("count_use_"): n for name, n in sums.items() if "count_use_" in name}
    return metrics | _used(used)


def _used(sums: dict[str, float]) -> dict[str, float]:
    """Shares of the rules by level and by kind of shape, and how much these tell about the rule."""
    found: dict[str, float] = {}
    names = list(dict.fromkeys(name.split("_")[0] for name in sums))
    for by, groups in (("level", [f"level_{i}" for i in range(len(sums))]), ("shape", KINDS)):
        known = [group for group in groups if sum(sums.get(f"{n}_{group}", 0.0) for n in names)]
        if not known:
            continue
        counts = torch.tensor([[sums[f"{name}_{group}"] for group in known] for name in names])
        shares = counts / counts.sum(0)
        for i, name in enumerate(names):
            for j, group in enumerate(known):
                found[f"use_{name}_{group}"] = shares[i, j].item()
        found[f"rule_by_{by}"] = told(counts)
    return found
