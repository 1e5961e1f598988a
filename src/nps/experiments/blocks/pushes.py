"""Is the pushed block predicted to move, and does the trace show who pushed it?

A push moves two blocks, but the action names only the pusher: to predict its own move, the pushed
block's slot needs the pusher as its context. A trace is about slots. Which slot shows a block is
found on the training set: the one whose encoding changes most when only that block moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from nps.models.transitions import RuleTransition
from nps.rules import Trace
from nps.worlds.blocks import BlockEpisodes, Outcome, State, every_action, render

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

    from nps.models.world_model import WorldModel

TOGETHER = 500
"""Pictures that are encoded at once."""
MOVES = 1_000
"""Free moves of the training set from which the slot of each block is found."""


class Pushes(NamedTuple):
    """P pushes."""

    before: State
    after: State
    action: Int[Tensor, "P"]
    pusher: Int[Tensor, "P"]
    """Index of the block that the action moves."""
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


def slot_changes(
    model: WorldModel, data: BlockEpisodes, objects: int, moves: int = MOVES
) -> Int[Tensor, "objects M"]:
    """How often each slot's encoding changes most when a block makes a free move."""
    free = (data.outcome == Outcome.FREE).nonzero()
    some = free[:: max(1, len(free) // moves)][:moves]
    episode, time = some.unbind(1)
    now, then = (model.encode(render(data.state(episode, time + t))) for t in (0, 1))
    slot = (now - then).square().sum(-1).argmax(-1)
    changed = data.positions[episode, time] != data.positions[episode, time + 1]
    block = changed.any(-1).int().argmax(-1)
    slots = now.shape[1]
    return torch.bincount(block * slots + slot, minlength=objects * slots).view(objects, slots)


class SlotOf(NamedTuple):
    """The slot that shows each block; every block has its own."""

    slot: Int[Tensor, "objects"]
    one_to_one: bool
    """False if one slot changes most for two blocks, so that one of them was given another."""


def slots_of_blocks(table: Int[Tensor, "objects M"]) -> SlotOf:
    """The one-to-one assignment of slots to blocks that explains most moves of `slot_changes`."""
    _, slot = linear_sum_assignment(table.cpu().numpy(), maximize=True)
    chosen = torch.as_tensor(slot, device=table.device)
    return SlotOf(chosen, bool((table.argmax(-1) == chosen).all()))


class Fired(NamedTuple):
    rule: Int[Tensor, "P"]
    context: Int[Tensor, "P"]


def last_fired(trace: Trace, slot: Int[Tensor, "P"]) -> Fired:
    """Rule and context of the last stage in which a rule fired on the slot, or -1."""
    at = slot[:, None, None].expand(-1, trace.rule.shape[1], 1)
    rule, context = (part.gather(-1, at).squeeze(-1) for part in (trace.rule, trace.context))
    stages = torch.arange(1, rule.shape[1] + 1, device=rule.device)
    last = (stages * (rule >= 0)).argmax(-1, keepdim=True)
    return Fired(rule.gather(-1, last).squeeze(-1), context.gather(-1, last).squeeze(-1))


@torch.no_grad()
def pusher_is_context(
    trace: Trace, pushes: Pushes, slot: Int[Tensor, "objects"]
) -> Bool[Tensor, "P"]:
    """True if the rule that last changed the pushed block's slot had the pusher's as context."""
    return last_fired(trace, slot[pushes.pushed]).context == slot[pushes.pusher]


@torch.no_grad()
def firing_metrics(model: Any, train: BlockEpisodes, data: BlockEpisodes) -> dict[str, float]:
    """How many slots fire: `fires_changed` of blocks that an action moves, `fires_still` of others.

    Of the first steps of the episodes; empty without rules.
    """
    if not isinstance(model.transition, RuleTransition):
        return {}
    slot, _ = slots_of_blocks(slot_changes(model, train, data.weights.shape[-1]))
    every = torch.arange(len(data.action), device=data.action.device)
    fired = torch.cat(
        [
            model.traced(model.encode(render(data.state(part, 0))), data.action[part, 0])[1]
            .fired.any(-2)
            .index_select(-1, slot)
            for part in every.split(TOGETHER)
        ]
    )
    changed = (data.positions[:, 0] != data.positions[:, 1]).any(-1)
    shares = {"changed": fired[changed], "still": fired[~changed]}
    return {f"fires_{name}": x.double().mean().item() for name, x in shares.items()}


@torch.no_grad()
def push_metrics(model: Any, train: BlockEpisodes, state: State, stay: bool) -> dict[str, Any]:
    """Metrics of all pushes that are one action away from `state`; empty if there are none.

    `push_moved`: share in which the pushed block's slot is predicted nearer to its new position
    than to its old one. The all-actions test does not measure that: no other action moves the
    pusher there, so the pusher's move alone makes the prediction the nearest. With rules also
    `push_context` (`pusher_is_context`) and `push_fired`: share in which a rule fired on the pushed
    block's slot.
    """
    pushes = pushes_from(state, stay)
    if not len(pushes.action):
        return {}
    slot, one_to_one = slots_of_blocks(slot_changes(model, train, state.weights.shape[-1]))
    before, after = (model.encode(render(world)) for world in (pushes.before, pushes.after))
    found: dict[str, Any] = {"slot_of_block": slot.tolist(), "slots_one_to_one": one_to_one}
    if isinstance(model.transition, RuleTransition):
        predicted, trace = model.traced(before, pushes.action)
        fired = last_fired(trace, slot[pushes.pushed]).rule >= 0
        found["push_context"] = pusher_is_context(trace, pushes, slot).double().mean().item()
        found["push_fired"] = fired.double().mean().item()
    else:
        predicted = model.predict(before, pushes.action)
    row = torch.arange(len(predicted), device=predicted.device)
    gone, stayed = (
        (predicted - encoded)[row, slot[pushes.pushed]].square().sum(-1)
        for encoded in (after, before)
    )
    return {"push_moved": (gone < stayed).double().mean().item(), **found}
