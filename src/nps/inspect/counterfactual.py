"""What if: the same episode under edits, beside the one without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from nps.errors import UserError
from nps.inspect.edits import Edits, Forced
from nps.inspect.playback import Playback, first_change, first_difference
from nps.inspect.workbench import Workbench, require_index


@dataclass(frozen=True, eq=False)
class WhatIf:
    """An episode with and without edits."""

    episode: int
    edits: Edits
    before: Playback
    """As the model is."""
    after: Playback
    """Under the edits."""
    rule_names: tuple[str, ...]

    @cached_property
    def first_difference(self) -> int | None:
        """The first frame that is drawn differently; None if none is."""
        return first_difference(self.before, self.after)

    @cached_property
    def first_change(self) -> int | None:
        """The first frame in which slots differ, even if the nearest pictures are the same."""
        return first_change(self.before, self.after)

    @property
    def error(self) -> tuple[float, float]:
        """The mean error of the predicted frames, without and with the edits."""
        return mean_error(self.before), mean_error(self.after)

    @cached_property
    def changed_firings(self) -> int:
        """How many choices of a rule differ, of the steps that both have, stages and slots."""
        old, new = self.before.record, self.after.record
        if old is None or new is None:
            return 0
        steps = min(self.before.steps, self.after.steps)
        return int((old.rule[:steps] != new.rule[:steps]).sum())

    def lines(self) -> list[str]:
        """In words."""
        old, new = self.error
        if self.first_difference is not None:
            where = f"first difference in frame {self.first_difference} of {self.before.steps}"
        elif self.first_change is not None:
            where = f"the same pictures; the encodings differ from frame {self.first_change}"
        else:
            where = "nothing is predicted differently"
        name = self.before.error_name
        return [
            f"episode {self.episode}, {in_words(self.edits, self.rule_names) or 'no edits'}",
            f"{where}; {self.changed_firings} choices of a rule differ",
            f"{name} {old:.4g} → {new:.4g}",
        ]

    def __repr__(self) -> str:
        first, *later = self.lines()
        return "\n".join([f"What if: {first}", *(f"  {line}" for line in later)])

    def _repr_html_(self) -> str:
        from nps.inspect.raster import of_record

        text = "<br>".join(map(escape, self.lines()))
        pictures = "".join(
            f"<div>{label}</div>{of_record(playback.record, self.rule_names, playback.slot_names)}"
            for label, playback in (("without", self.before), ("with the edits", self.after))
            if playback.record is not None
        )
        return f"<p>{text}</p>{pictures}"


def what_if(
    source: Any,
    episode: int = 0,
    *,
    disable: Sequence[int | str] | int | str = (),
    force: Sequence[Forced] | Forced = (),
    edits: Edits | None = None,
) -> WhatIf:
    """Play an episode again under edits.

    ::

        nps.inspect.what_if(run, disable=["push"])
        nps.inspect.what_if(run, force=Forced(step=3, slot=1, rule=0))

    Args:
        source: a run, or its workbench.
        episode: its number, of the validation set.
        disable: rules that may not fire, by index or name.
        force: choices made by hand.
        edits: any others.
    """
    bench = workbench_of(source)
    require_index("episode", episode, bench.count())
    edits = Edits() if edits is None else edits
    which = [disable] if isinstance(disable, (int, str)) else list(disable)
    forced = (force,) if isinstance(force, Forced) else tuple(force)
    edits = replace(
        edits,
        disabled=(*edits.disabled, *(rule_index(bench, rule) for rule in which)),
        forced=(*edits.forced, *forced),
    )
    before = bench.play(episode)
    return WhatIf(episode, edits, before, bench.play(episode, edits), bench.rule_names)


def workbench_of(source: Any) -> Workbench:
    """The workbench of a run, or the workbench itself."""
    bench = getattr(source, "workbench", source)
    if not isinstance(bench, Workbench):
        raise UserError(f"got {type(source).__name__}, expected a run or its workbench")
    return bench


def rule_index(bench: Workbench, rule: int | str) -> int:
    """The index of a rule by index or name."""
    if bench.layer is None:
        raise UserError("rule: this model has no rules")
    try:
        return bench.layer.rules[rule].index
    except ValueError as error:
        raise UserError(str(error)) from None


def mean_error(playback: Playback) -> float:
    """Over the predicted frames whose error is known; NaN if none is."""
    known = playback.error[1:][np.isfinite(playback.error[1:])]
    return float(known.mean()) if len(known) else float("nan")


def in_words(edits: Edits, names: Sequence[str]) -> str:
    """Edits in words: "push off, slot 1 at step 3: turn"."""

    def name(rule: int) -> str:
        return names[rule] if 0 <= rule < len(names) else f"rule {rule}"

    parts = [f"{name(rule)} off" for rule in edits.disabled]
    parts += [f"{name(each.rule)} times {each.factor:g}" for each in edits.scaled]
    parts += [f"{name(each.rule)} adds {each.amount:+g} to {each.feature}" for each in edits.added]
    for each in edits.forced:
        chosen = [] if each.rule is None else ["nothing" if each.rule < 0 else name(each.rule)]
        chosen += [] if each.context is None else [f"context {each.context}"]
        parts.append(f"slot {each.slot} at step {each.step}: {', '.join(chosen)}")
    parts += [f"slot {e.slot} at step {e.step}: {e.feature} {e.value:g}" for e in edits.placed]
    parts += [f"action {e.action} at step {e.step}" for e in edits.acted]
    return ", ".join(parts)
