"""What was decided about every slot, at every step and stage of some episodes, as a table.

A row is a slot at one stage: what people can read of it and of the context it had or would have
had, what acted, what truly happened, and which rule fired. Descriptions of rules are made from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nps.errors import UserError
from nps.inspect.playback import Playback, Record
from nps.inspect.workbench import Workbench
from nps.rules import ParallelNPS, RuleLayer, SequentialNPS
from nps.rules.allowed import Allowed

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from numpy import ndarray

OTHERS, NOTHING = "on another slot", "nothing"
MOST_ACTIONS = 64
"""Columns of actions; with more of them, actions are left out."""


@dataclass(frozen=True, eq=False)
class Observations:
    """The rows of some episodes."""

    episode: Int[ndarray, "E"]
    slot: Int[ndarray, "E"]
    rule: Int[ndarray, "E"]
    """That fired, or -1."""
    empty: Bool[ndarray, "E"]
    """Whether the layer was told to leave the slot out, as it holds nothing."""
    primary: Float[ndarray, "E F"]
    """Features of the slot."""
    context: Float[ndarray, "E F"]
    """Features of its context, NaN where there is none."""
    added: Float[ndarray, "E F"]
    """Change of the slot's features."""
    action: tuple[str, ...]
    """The action at the slot, `OTHERS` where it concerned another one; empty without actions.
    """
    event: tuple[str, ...]
    """What truly happened; empty if that is not known."""
    read: Float[ndarray, "E S"]
    """The slot as the layer read it."""
    read_context: Float[ndarray, "E S"]
    feature_names: tuple[str, ...]
    slot_names: tuple[str, ...]
    episodes: int

    def columns(self) -> tuple[Float[ndarray, "E C"], tuple[str, ...]]:
        """What can be read of slot and context."""
        others = tuple(f"context's {name}" for name in self.feature_names)
        return np.concatenate([self.primary, self.context], 1), (*self.feature_names, *others)

    def acted(self) -> tuple[Float[ndarray, "E A"], tuple[str, ...]]:
        """A column for each action, 1 where it was done; none if there are too many."""
        known = sorted(set(self.action) - {OTHERS})
        if not known or len(known) > MOST_ACTIONS:
            return np.zeros((len(self.rule), 0)), ()
        actions = np.array(self.action)
        found = np.stack([actions == name for name in known], 1).astype(float)
        return found, tuple(f"action is {name}" for name in known)


def observe(bench: Workbench, episodes: int) -> Observations:
    """Play the first episodes of a workbench and collect what fired."""
    if bench.layer is None:
        raise UserError("describe: this model has no rules")
    if episodes < 1:
        raise UserError(f"episodes: got {episodes}, expected at least 1")
    count = min(episodes, bench.count())
    tables = [_of_playback(bench, n, bench.play(n)) for n in range(count)]
    first = tables[0]

    def joined(name: str) -> Any:
        values = [table[name] for table in tables]
        if isinstance(values[0], tuple):
            return tuple(each for value in values for each in value)
        return np.concatenate(values)

    return Observations(
        **{name: joined(name) for name in first if name != "slot_names"},
        feature_names=tuple(bench.feature_names),
        slot_names=first["slot_names"],
        episodes=count,
    )


def _of_playback(bench: Workbench, episode: int, playback: Playback) -> dict[str, Any]:
    record, layer = playback.record, bench.layer
    assert layer is not None
    if record is None:
        raise UserError("describe: this workbench records no rules")
    steps, stages, slots, _ = record.sizes
    rows = steps * stages * slots
    before = bench.layer_features(record.before)
    after = bench.layer_features(record.before + record.update)
    contexts = _contexts(layer, record)
    at = np.maximum(contexts, 0)[..., None]
    context = np.where(contexts[..., None] < 0, np.nan, np.take_along_axis(before, at, -2))
    read_context = np.take_along_axis(record.before, at, -2)
    read_context = np.where(contexts[..., None] < 0, 0.0, read_context)
    step = np.repeat(np.arange(steps), stages * slots)
    slot = np.tile(np.arange(slots), steps * stages)
    return {
        "episode": np.full(rows, episode),
        "slot": slot,
        "rule": record.rule.reshape(rows),
        "empty": _empty(record).reshape(rows),
        "primary": before.reshape(rows, -1),
        "context": context.reshape(rows, -1),
        "added": (after - before).reshape(rows, -1),
        "action": _actions(bench, playback, step, slot),
        "event": tuple(playback.events[t] or NOTHING for t in step) if playback.events else (),
        "read": record.before.reshape(rows, -1),
        "read_context": read_context.reshape(rows, -1),
        "slot_names": playback.slot_names,
    }


def _empty(record: Record) -> Bool[ndarray, "T K M"]:
    """The slots that calls leave out."""
    steps, stages, slots, _ = record.sizes
    found = np.zeros((steps, stages, slots), bool)
    for t, call in enumerate(record.calls):
        if call.slot_mask is not None:
            found[t] = ~call.slot_mask.cpu().numpy().reshape(-1, slots)[0]
    return found


@torch.no_grad()
def _contexts(layer: RuleLayer, record: Record) -> Int[ndarray, "T K M"]:
    """The context of each slot: the one it had, or would have had if something had fired on it."""
    contexts = record.context.copy()
    bound = isinstance(layer, (SequentialNPS, ParallelNPS)) and not hasattr(layer, "bind_operand")
    if not bound or layer.rules.event_dims != 1 or not record.calls:
        return contexts
    weight = layer.rules.embedding
    for t, call in enumerate(record.calls):
        slots = torch.as_tensor(record.before[t], dtype=weight.dtype, device=weight.device)
        allowed = Allowed(call.slot_mask, None)
        for k, seen in enumerate(slots):
            given = call.selection
            if isinstance(given, torch.Tensor):
                given = given.reshape(1, len(seen), -1)
            features = layer._features(seen.unsqueeze(0), given, call.slot_mask)
            others = allowed.contexts(len(seen), layer.self_context, weight.device)
            scores = layer.bind(features, features)[0]
            if others is not None:
                scores = scores.masked_fill(~others, -torch.inf)
            best = torch.where(scores.amax(-1).isfinite(), scores.argmax(-1), -1).cpu().numpy()
            contexts[t, k] = np.where(record.rule[t, k] < 0, best, contexts[t, k])
    return contexts


def _actions(
    bench: Workbench, playback: Playback, step: Int[ndarray, "E"], slot: Int[ndarray, "E"]
) -> tuple[str, ...]:
    """The name of the action as each slot sees it."""
    if playback.actions is None or not bench.actions:
        return ()
    own = own_actions(bench, len(playback.slot_names))
    acts = playback.actions
    if not own:
        return tuple(bench.actions[int(acts[t])] for t in step)
    return tuple(own.get((int(m), int(acts[t])), OTHERS) for t, m in zip(step, slot, strict=True))


def own_actions(bench: Workbench, slots: int) -> dict[tuple[int, int], str]:
    """Slot and action -> what the action is to that slot; empty if actions are for all slots.

    The keys of a workbench say which actions are one and the same thing done to different slots;
    its name is what the names of these actions have in common: "block 2 north" is "north".
    """
    found: dict[tuple[int, int], str] = {}
    for actions in bench.keys.values():
        if len(actions) != slots or len(set(actions)) != slots:
            continue
        name = _common_end([bench.actions[action] for action in actions])
        found |= {(m, int(action)): name for m, action in enumerate(actions)}
    return found


def _common_end(names: Sequence[str]) -> str:
    """The last words that names share; if there are none, what the ends of each word share.

    "block 2 north", "block 3 north" are "north"; "A.x -= B.x", "B.x -= A.x" are ".x -= .x".
    """
    words = [name.split() for name in names]
    if last := _shared_end(words):
        return " ".join(last)
    ends = ("".join(_shared_end(column)) for column in zip(*words, strict=False))
    return " ".join(filter(None, ends)) or names[0]


def _shared_end(rows: Sequence[Sequence[str]]) -> list[str]:
    """The entries at the end of all rows that are the same in each."""
    columns = zip(*(row[::-1] for row in rows), strict=False)
    return [c[0] for c in itertools.takewhile(lambda c: len(set(c)) == 1, columns)][::-1]
