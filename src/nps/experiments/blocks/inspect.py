"""One trained world model of blocks: which slot shows which block, the moves it knows, and, if it
has rules, what they do in a push; with pictures of pushes and of episodes foreseen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.experiments.blocks.pictures import pushes_drawn
from nps.experiments.blocks.pushes import Pushes, answers, pushes_from, slots_of_blocks, told
from nps.experiments.experiment import NoOptions
from nps.experiments.world_models.look import foreseen, ranking_table
from nps.inspect import figures
from nps.inspect.report import Block, Table, Text
from nps.models.transitions import RuleTransition
from nps.rules import Trace
from nps.worlds.blocks import render

if TYPE_CHECKING:
    from jaxtyping import Int

KINDS = ("free", "push", "no_op")
RANKED = 1_000
"""Test episodes that are ranked: all ten thousand take minutes on a CPU."""


@torch.no_grad()
def look(task: Any, model: Any, options: NoOptions) -> list[Block]:
    """The slot that shows each block, what becomes of every kind of action, and the pushes."""
    found = answers(model, task.sets["train"], task.config.objects)
    table = found.cpu().tolist()
    slots = [f"slot {m}" for m in range(len(table[0]))]
    rows = [[f"block {block}", *map(str, row)] for block, row in enumerate(table)]
    caption = "Free moves of the training set: the slot whose encoding changes most, by block."
    moves = task.moves(model)
    shares = [f"{100 * moves[f'moves_{kind}']:.1f} %" for kind in KINDS if f"moves_{kind}" in moves]
    names = [kind.replace("_", "-") for kind in KINDS if f"moves_{kind}" in moves]
    about = "Of all actions, those whose prediction is nearest to what the action does."
    blocks: list[Block] = [
        Table(["", *slots], rows, caption),
        Table(["", *names], [["right", *shares]], about),
        ranked(task, model),
    ]
    if isinstance(model.transition, RuleTransition):
        blocks += pushes_told(task, model, slots_of_blocks(found).slot)
    return [*blocks, *foreseen(task, model)]


def ranked(task: Any, model: Any) -> Table:
    """H@1 and its floors; a rank among fewer states is better, so it is said among how many."""
    count = len(task.sets["test"].lengths)
    most = min(count, RANKED)
    among = "Test set"
    if most < count:
        among = f"First {most:,} of {count:,} test episodes (among all, as nps eval, H@1 is lower)"
    return ranking_table(task.ranking(model, most), task.horizons, among)


def pushes_told(task: Any, model: Any, slot: Int[Tensor, "objects"]) -> list[Block]:
    """What rules do when a block pushes another, and whether the trace tells who pushes."""
    pushes = pushes_from(task.acted_from("test"), task.config.stay)
    if not len(pushes.action):
        return []
    _, trace = model.traced(model.encode(render(pushes.before)), pushes.action)
    share = 100 * told(trace, pushes, slot).double().mean().item()
    sentence = f"In {share:.1f} % of {len(pushes.action)} pushes the pushed block's context is"
    blocks: list[Block] = [roles(pushes, trace, slot, model.transition.layer.rules.names)]
    blocks.append(Text(f"{sentence} the pusher, when a rule last changed it."))
    if figures.available():
        blocks.append(pushes_drawn(pushes, trace, slot))
    return blocks


def roles(pushes: Pushes, trace: Trace, slot: Int[Tensor, "objects"], names: list[str]) -> Table:
    """How often each rule fired on the pusher's slot, the pushed block's and the others'."""
    rule = trace.rule[..., slot]  # by block instead of by slot
    block = torch.arange(len(slot), device=rule.device)
    pusher = (block == pushes.pusher[:, None])[:, None].expand_as(rule)
    pushed = (block == pushes.pushed[:, None])[:, None].expand_as(rule)
    rows = []
    who = {"pusher": pusher, "pushed block": pushed, "other blocks": ~(pusher | pushed)}
    for name, where in who.items():
        counts = torch.bincount(rule[where] + 1, minlength=len(names) + 1)
        shares = 100 * counts / counts.sum()
        rows.append([name, *(f"{share:.1f} %" for share in shares[1:]), f"{shares[0]:.1f} %"])
    caption = "Pushes: the rule that fired, in all stages."
    return Table(["", *names, "none"], rows, caption)
