"""What `nps inspect` shows of a world model of blocks: which slot shows which block, which moves it
predicts and, if it has rules, what they do in a push; pictures of pushes and of roll-outs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.experiments.blocks.pictures import pushes_figure
from nps.experiments.blocks.pushes import (
    Pushes,
    pusher_is_context,
    pushes_from,
    slot_changes,
    slots_of_blocks,
)
from nps.experiments.world_models.inspect import ranking_table, rollout_figure
from nps.inspect import figures
from nps.inspect.report import Part, Table, Text
from nps.models.transitions import RuleTransition
from nps.rules import Trace
from nps.worlds.blocks import render

if TYPE_CHECKING:
    from jaxtyping import Int

KINDS = ("free", "push", "no_op")
RANKED = 1_000
"""Test episodes that are ranked: all ten thousand take minutes on a CPU."""


@torch.no_grad()
def inspect_blocks(task: Any, model: Any) -> list[Part]:
    """The slot that shows each block, the moves that are predicted, the ranking and the pushes."""
    changes = slot_changes(model, task.sets["train"], task.config.objects)
    table = changes.cpu().tolist()
    slots = [f"slot {m}" for m in range(len(table[0]))]
    rows = [[f"block {block}", *map(str, row)] for block, row in enumerate(table)]
    caption = "Free moves of the training set: the slot whose encoding changes most, by block."
    moves = task.moves(model)
    shares = [f"{100 * moves[f'moves_{kind}']:.1f} %" for kind in KINDS if f"moves_{kind}" in moves]
    names = [kind.replace("_", "-") for kind in KINDS if f"moves_{kind}" in moves]
    about = "Share of actions whose prediction is nearest to their own outcome, of all actions'."
    parts: list[Part] = [
        Table(["", *slots], rows, caption),
        Table(["", *names], [["right", *shares]], about),
        ranking(task, model),
    ]
    if isinstance(model.transition, RuleTransition):
        parts += rules_in_pushes(task, model, slots_of_blocks(changes).slot)
    return [*parts, *rollout_figure(task, model)]


def ranking(task: Any, model: Any) -> Table:
    """H@1 and its baselines. Ranks among fewer states are better, so the caption says how many."""
    count = len(task.sets["test"].lengths)
    most = min(count, RANKED)
    ranked = "Test set"
    if most < count:
        ranked = f"First {most:,} of {count:,} test episodes (nps eval ranks all: H@1 is lower)"
    return ranking_table(task.ranking(model, most), task.horizons, ranked)


def rules_in_pushes(task: Any, model: Any, slot: Int[Tensor, "objects"]) -> list[Part]:
    """What the rules do when a block pushes another, and whether the trace shows who pushes."""
    pushes = pushes_from(task.acted_from("test"), task.config.stay)
    if not len(pushes.action):
        return []
    _, trace = model.traced(model.encode(render(pushes.before)), pushes.action)
    share = 100 * pusher_is_context(trace, pushes, slot).double().mean().item()
    sentence = (
        f"In {share:.1f} % of {len(pushes.action)} pushes, the pusher is the context of the rule "
        "that last changed the pushed block."
    )
    parts: list[Part] = [
        roles_table(pushes, trace, slot, model.transition.layer.rules.names),
        Text(sentence),
    ]
    if figures.available():
        parts.append(pushes_figure(pushes, trace, slot))
    return parts


def roles_table(
    pushes: Pushes, trace: Trace, slot: Int[Tensor, "objects"], names: list[str]
) -> Table:
    """How often each rule fires on the slots of the pusher, the pushed block and the others."""
    rule = trace.rule[..., slot]  # by block instead of by slot
    block = torch.arange(len(slot), device=rule.device)
    pusher = (block == pushes.pusher[:, None])[:, None].expand_as(rule)
    pushed = (block == pushes.pushed[:, None])[:, None].expand_as(rule)
    rows = []
    roles = {"pusher": pusher, "pushed block": pushed, "other blocks": ~(pusher | pushed)}
    for name, where in roles.items():
        counts = torch.bincount(rule[where] + 1, minlength=len(names) + 1)
        shares = 100 * counts / counts.sum()
        rows.append([name, *(f"{share:.1f} %" for share in shares[1:]), f"{shares[0]:.1f} %"])
    caption = "Pushes: the rule that fired, in all stages."
    return Table(["", *names, "none"], rows, caption)
