"""Describe rules: when they fire, what they do, what they resemble, and where they are used.

When: a small decision tree on what people can read of the slot, of its context and of the action,
with its accuracy on held-out episodes. What: a sparse linear law of the change, with its held-out
R²; a rule that is no such law is said not to be. Both describe what the rule was seen to do, on the
validation set; they are no proof of what it would do elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nps.inspect import linear_laws, trees
from nps.inspect.counterfactual import rule_index, workbench_of
from nps.inspect.description import Description, Does, When
from nps.inspect.observations import OTHERS, Observations, observe
from nps.inspect.relatives import all_relatives

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy import ndarray

FEW = 10
"""Uses below which nothing is said about a rule."""
LINEAR = 0.9
"""R² from which on a rule is called linear."""
ALWAYS = 0.99
"""Share of the slots that are not empty from which on a rule is said to fire on all."""
MOST = 4_000
"""Examples that a tree or a law is fitted on."""
TOLD = 8
"""Features whose changes are fitted: those that change most. A slot that is read as its bare
numbers has many."""
EPISODES = 50
NUMBERS = re.compile(r"[\d?]+(→[\d?]+)?")
JOINING = {"of", "by", "and", "with"}
"""Words of an event that say nothing without whom it concerns."""
ACTED = "acted on"
"""Whether the action is one on this slot."""


def describe(source: Any, rule: int | str, episodes: int = EPISODES) -> Description:
    """A rule in words.

    ::

        nps.inspect.describe(run, "rule 2")

    Args:
        source: a run, or its workbench.
        rule: its index or name.
        episodes: of the validation set that are played.
    """
    bench = workbench_of(source)
    which = rule_index(bench, rule)
    return describe_all(bench, episodes)[which]


def describe_all(source: Any, episodes: int = EPISODES) -> list[Description]:
    """All rules in words, from the same episodes."""
    bench = workbench_of(source)
    seen = observe(bench, episodes)
    layer = bench.layer
    assert layer is not None
    total = max(1, int((seen.rule >= 0).sum()))
    relatives = all_relatives(layer, seen)
    found = []
    for i, name in enumerate(layer.rules.names):
        used = seen.rule == i
        uses = int(used.sum())
        found.append(
            Description(
                rule=i,
                name=name,
                uses=uses,
                share=uses / total,
                when=when_it_fires(seen, i) if uses >= FEW else None,
                does=what_it_does(seen, i) if uses else None,
                relatives=relatives[i],
                by=shares(seen, used),
                episodes=seen.episodes,
            )
        )
    return found


def when_it_fires(seen: Observations, rule: int) -> When | None:
    """A tree that tells the slots on which a rule fires from as many on which it does not.

    Empty slots are left out: no rule may fire there, and what can be read of them is noise.
    """
    fires, may = seen.rule == rule, ~seen.empty
    always = float(fires[may].mean())
    if always >= ALWAYS:
        nearly = "" if fires[may].all() else "nearly "
        which = "every slot that is not empty" if seen.empty.any() else "every slot, at every step"
        return When((f"on {nearly}{which}",), always, always)
    x, names = seen.columns()
    x, names, rows = _known(x, names)
    acted, actions = seen.acted()
    x = np.concatenate([x, acted], 1)
    truths = {name: name.replace(" is ", " is not ", 1) for name in actions}
    if OTHERS in seen.action:
        x = np.concatenate([x, acted.sum(1, keepdims=True)], 1)
        truths[ACTED] = f"not {ACTED}"
    names = (*names, *truths)
    chosen = _balanced(fires & rows & may, ~fires & rows & may)
    held_out = _held_out(seen, chosen)
    fitted, tested = chosen[~held_out], chosen[held_out]
    enough = all(fires[part].sum() >= FEW / 3 for part in (fitted, tested))
    if not names or not enough or fires[chosen].all():
        return None
    tree = trees.grow(x[fitted], fires[fitted])
    right = trees.predict(tree, x[tested]) == fires[tested]
    share = float(fires[tested].mean())
    lines = tuple(trees.lines(tree, names, truths))
    return When(lines, float(right.mean()), max(share, 1.0 - share))


def what_it_does(seen: Observations, rule: int) -> Does:
    """A sparse linear law of what a rule changes."""
    used = np.flatnonzero(seen.rule == rule)
    own = seen.feature_names
    x, names = seen.columns()
    x, names, rows = _known(x[used], names)
    acted, actions = seen.acted()
    x, names = np.concatenate([x, acted[used]], 1), (*names, *actions)
    known = np.isfinite(seen.added[used]).all(0)
    targets = [name for name, read in zip(own, known, strict=True) if read]
    rows &= np.isfinite(seen.added[used][:, known]).all(1)
    x, change, used = x[rows][:MOST], seen.added[used][rows][:MOST][:, known], used[rows][:MOST]
    if not targets or not len(change):
        return Does("changes nothing that can be read", None, False)
    told = _most_changed(change)
    change, targets = change[:, told], [targets[i] for i in told]
    held_out = _held_out(seen, used)
    if len(used) < 2 * (x.shape[1] + 1) or not 0 < held_out.sum() < len(used):
        return Does(_amounts(change, targets), None, False)
    one_of = x[:, x.shape[1] - len(actions) :]
    varied = one_of[:, one_of.std(0) > 0]
    # Where one of several actions is always done, they say what a constant would.
    constant = not varied.shape[1] or not (varied.sum(1) == 1.0).all()
    law = linear_laws.fit(x, change, names, held_out, constant)
    linear = law.r2 is not None and law.r2 >= LINEAR
    if linear or law.r2 is None:
        return Does(linear_laws.sentence(law, targets), law.r2, linear)
    said = f"{_amounts(change, targets)}; not linear in what can be read"
    return Does(said, law.r2, False)


def _most_changed(change: Float[ndarray, "E F"]) -> list[int]:
    """The features that a sentence tells, in their order."""
    size = np.abs(change).mean(0)
    return sorted(np.argsort(-size, kind="stable")[:TOLD].tolist())


def _amounts(change: Float[ndarray, "E F"], targets: Sequence[str]) -> str:
    """How much of what changes, where there is no law of it: "changes row by about 0.1"."""
    size = np.abs(change).mean(0)
    told = np.argsort(-size, kind="stable")[: linear_laws.MOST_FEATURES]
    parts = [
        f"{targets[i]} by about {float(f'{size[i]:.1g}'):g}"
        for i in sorted(told.tolist())
        if size[i] > 0.05 * size.max()
    ]
    return f"changes {' and '.join(parts)}" if parts else "changes nothing that can be read"


def shares(seen: Observations, used: Bool[ndarray, "E"]) -> dict[str, dict[str, float]]:
    """Shares of a rule's uses by object, action and event."""
    rows = np.flatnonzero(used)
    if not len(rows):
        return {}
    kinds: dict[str, list[str]] = {"object": [seen.slot_names[m] for m in seen.slot[rows]]}
    for kind, names in (("action", seen.action), ("event", seen.event)):
        if names:
            kinds[kind] = [names[row] for row in rows]
    if "event" in kinds:
        if kinds["event"] == kinds.get("action"):  # as where events are what the action asks for
            del kinds["event"]
        else:
            kinds["event"] = [event_kind(name, seen.slot_names) for name in kinds["event"]]
    return {
        kind: {name: count / len(rows) for name, count in Counter(names).most_common()}
        for kind, names in kinds.items()
    }


def event_kind(event: str, slots: Sequence[str] = ()) -> str:
    """An event without whom it concerns: "push 2→1" is "push", "bounce of 1, bounce of 3" "bounce".

    Args:
        event: in words, several divided by commas.
        slots: names of slots that may be part of it.
    """
    kinds = []
    for part in event.split(", "):
        for name in sorted(slots, key=len, reverse=True):
            part = part.replace(name, " ")
        words = [word for word in part.split() if not NUMBERS.fullmatch(word)]
        kind = " ".join(word for word in words if word not in JOINING) or part.strip()
        kinds.append(kind)
    return " and ".join(sorted(set(kinds)))


def _known(
    x: Float[ndarray, "E C"], names: Sequence[str]
) -> tuple[Float[ndarray, "E C"], tuple[str, ...], Bool[ndarray, "E"]]:
    """Columns that are mostly known, and the rows in which they all are."""
    known = np.isfinite(x)
    use = known.mean(0) > 0.8
    kept = tuple(name for name, used in zip(names, use, strict=True) if used)
    return x[:, use], kept, known[:, use].all(1)


def _balanced(positive: Bool[ndarray, "E"], negative: Bool[ndarray, "E"]) -> Any:
    """Rows of both kinds, as many of each; always the same ones."""
    random = np.random.default_rng(0)
    parts = [np.flatnonzero(positive), np.flatnonzero(negative)]
    count = min(MOST // 2, *(len(part) for part in parts))
    if count == 0:
        return parts[0][:0]
    chosen = [random.permutation(part)[:count] for part in parts]
    return np.sort(np.concatenate(chosen))


def _held_out(seen: Observations, rows: Any) -> Bool[ndarray, "E"]:
    """Every third episode; of fewer than three, every third row."""
    if seen.episodes >= 3:
        return np.asarray(seen.episode[rows] % 3 == 2)
    return np.asarray(np.arange(len(rows)) % 3 == 2)
