"""Is the pushed block foreseen to move, and does the trace tell who pushed it?

A push moves two blocks, and only the pusher is named by the action: to know that it moves, the
pushed block's slot must look at the pusher. A trace speaks of slots; which of them shows a block is
found on the training set, as the slot whose encoding changes most when the block alone moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from nps.models.transitions import RuleTransition
from nps.rules import Trace
from nps.worlds.blocks import Episodes, Outcome, State, every_action, render

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

    from nps.models.world_model import WorldModel

MOVES = 1_000
"""Free moves of the training set that tell the slots of blocks."""


class Pushes(NamedTuple):
    """P pushes: all that one action can bring about from some states."""

    before: State
    after: State
    action: Int[Tensor, "P"]
    pusher: Int[Tensor, "P"]
    """The number of the block that the action is about."""
    pushed: Int[Tensor, "P"]


def pushes_from(state: State, stay: bool) -> Pushes:
    """Every push that is one action away from these states."""
    after, outcome = every_action(state, stay)
    world, action = (outcome == Outcome.PUSH).nonzero(as_tuple=True)
    before, moved = state.at(world), State(*(part[world, action] for part in after))
    pusher = action // (5 if stay else 4)
    blocks = torch.arange(state.weights.shape[-1], device=action.device)
    changed = (before.positions != moved.positions).any(-1) & (blocks != pusher[:, None])
    return Pushes(before, moved, action, pusher, changed.int().argmax(-1))


def answers(model: WorldModel, data: Episodes, objects: int) -> Int[Tensor, "objects M"]:
    """How often each slot's encoding changes most when a block makes a free move."""
    free = (data.outcome == Outcome.FREE).nonzero()
    some = free[:: max(1, len(free) // MOVES)][:MOVES]
    episode, time = some.unbind(1)
    now, then = (model.encode(render(data.state(episode, time + t))) for t in (0, 1))
    slot = (now - then).square().sum(-1).argmax(-1)
    changed = data.positions[episode, time] != data.positions[episode, time + 1]
    block = changed.any(-1).int().argmax(-1)
    slots = now.shape[1]
    return torch.bincount(block * slots + slot, minlength=objects * slots).view(objects, slots)


class SlotOf(NamedTuple):
    """The slot that shows each block, no two blocks the same one."""

    slot: Int[Tensor, "objects"]
    one_to_one: bool
    """False: some slot changes most for two blocks, and one of them was given another."""


def slots_of_blocks(table: Int[Tensor, "objects M"]) -> SlotOf:
    """The assignment of slots to blocks that explains most moves of `answers`."""
    _, slot = linear_sum_assignment(table.cpu().numpy(), maximize=True)
    chosen = torch.as_tensor(slot, device=table.device)
    return SlotOf(chosen, bool((table.argmax(-1) == chosen).all()))


class Fired(NamedTuple):
    rule: Int[Tensor, "P"]
    context: Int[Tensor, "P"]


def last_fired(trace: Trace, slot: Int[Tensor, "P"]) -> Fired:
    """Rule and context of the last stage in which a rule fired on this slot, or -1."""
    at = slot[:, None, None].expand(-1, trace.rule.shape[1], 1)
    rule, context = (part.gather(-1, at).squeeze(-1) for part in (trace.rule, trace.context))
    stages = torch.arange(1, rule.shape[1] + 1, device=rule.device)
    last = (stages * (rule >= 0)).argmax(-1, keepdim=True)
    return Fired(rule.gather(-1, last).squeeze(-1), context.gather(-1, last).squeeze(-1))


@torch.no_grad()
def told(trace: Trace, pushes: Pushes, slot: Int[Tensor, "objects"]) -> Bool[Tensor, "P"]:
    """Was the pusher's slot the context of the pushed block's slot, when that last changed?"""
    return last_fired(trace, slot[pushes.pushed]).context == slot[pushes.pusher]


@torch.no_grad()
def push_metrics(model: Any, train: Episodes, state: State, stay: bool) -> dict[str, Any]:
    """What becomes of pushes; nothing, where there are none.

    `push_moved`: the share in which the pushed block's slot is foreseen nearer to where it went
    than to where it was. The all-actions test does not ask that: no other action moves the pusher
    there, so that its move alone is nearest to the outcome. Of rules also `push_context`, the share
    that the trace tells, and `push_fired`, in which one fired on the pushed block's slot at all.
    """
    pushes = pushes_from(state, stay)
    if not len(pushes.action):
        return {}
    slot, one_to_one = slots_of_blocks(answers(model, train, state.weights.shape[-1]))
    before, after = (model.encode(render(world)) for world in (pushes.before, pushes.after))
    found: dict[str, Any] = {"slot_of_block": slot.tolist(), "slots_one_to_one": one_to_one}
    if isinstance(model.transition, RuleTransition):
        predicted, trace = model.traced(before, pushes.action)
        fired = last_fired(trace, slot[pushes.pushed]).rule >= 0
        found["push_context"] = told(trace, pushes, slot).double().mean().item()
        found["push_fired"] = fired.double().mean().item()
    else:
        predicted = model.predict(before, pushes.action)
    row = torch.arange(len(predicted), device=predicted.device)
    gone, stayed = (
        (predicted - encoded)[row, slot[pushes.pushed]].square().sum(-1)
        for encoded in (after, before)
    )
    return {"push_moved": (gone < stayed).double().mean().item(), **found}
