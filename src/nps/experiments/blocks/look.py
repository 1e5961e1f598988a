"""One trained world model of blocks: which slot answers to which block, and the moves it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.experiments.experiment import NoOptions
from nps.inspect.report import Block, Table
from nps.worlds.blocks import Outcome, render

if TYPE_CHECKING:
    from jaxtyping import Int

EPISODES = 1_000
KINDS = ("free", "push", "no_op")


@torch.no_grad()
def look(task: Any, model: Any, options: NoOptions) -> list[Block]:
    """The slot that changes when a block is moved, and what becomes of every kind of action."""
    table = answers(task, model).cpu().tolist()
    slots = range(len(table[0]))
    rows = [[f"block {block}", *map(str, row)] for block, row in enumerate(table)]
    caption = "Free moves of the test set: the slot that the model changes most, by moved block."
    moves = task.moves(model)
    shares = [f"{100 * moves[f'moves_{kind}']:.1f} %" for kind in KINDS if f"moves_{kind}" in moves]
    names = [kind.replace("_", "-") for kind in KINDS if f"moves_{kind}" in moves]
    about = "Of all actions, those whose prediction is nearest to what the action does."
    return [
        Table(["", *(f"slot {m}" for m in slots)], rows, caption),
        Table(["", *names], [["right", *shares]], about),
    ]


def answers(task: Any, model: Any) -> Int[Tensor, "objects M"]:
    """How often each slot changes most, for each moved block; by the first step of episodes."""
    data, objects = task.sets["test"], task.config.objects
    some = torch.arange(min(EPISODES, len(data.action)), device=data.action.device)
    moved = some[data.outcome[some, 0] == Outcome.FREE]
    slots = model.encode(render(data.state(moved, 0)))
    action = data.action[moved, 0]
    change = (model.predict(slots, action) - slots).square().sum(-1)
    block = action // (model.actions.count // objects)
    pair = block * slots.shape[1] + change.argmax(-1)
    counts = torch.bincount(pair, minlength=objects * slots.shape[1])
    return counts.view(objects, -1)
