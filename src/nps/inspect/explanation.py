"""What an explanation of a choice says, in words, in a notebook and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from nps.inspect.decisions import NULL, Choice
from nps.inspect.grids import difference

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, UInt8
    from numpy import ndarray

SHOWN = 4
"""Features of a sentence, those that matter most."""


@dataclass(frozen=True, eq=False)
class Flip:
    """The smallest change of the slot that lets somebody else win the choice."""

    slot: int
    rule: int
    """Who wins then; -1: nothing fires."""
    size: float
    """Length (L2) of the change."""
    relative: float
    """Its share of the slot's length."""
    change: Float[ndarray, "S"]
    """In what the layer reads, or in what it selects by if that does not depend on the slots."""
    features: dict[str, float]
    """What people can read of it."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a rule fired on a slot at one step and stage, or why none did."""

    step: int
    stage: int
    slot: int
    kind: str
    """"sequential": one pair of slot and rule wins the stage. "parallel": each slot for itself."""
    names: tuple[str, ...]
    """Of the rules."""
    slot_names: tuple[str, ...]
    fired: bool
    rule: int
    context: int
    chooser: int | None
    """The slot whose scores choose the rule, where that is not the one the rule reads and changes,
    as in `OperandNPS`; None in other layers."""
    scores: Float[ndarray, "M N"]
    """Without noise; NaN where a pair is not allowed."""
    bids: tuple[float, float] | None
    """Of the rules and of the null rule, for this slot."""
    winner: Choice
    rival: Choice | None
    """The next best. Of a slot that lost, its own best."""
    margin: float | None
    """What the winner is ahead of it by; of forced choices it may be negative."""
    forced: bool
    """Whether the choice was made by hand: the scores alone would have made another."""
    flip: Flip | None
    contexts: Float[ndarray, "M"] | None
    """Scores of the slots as context, or of what `chooser` asks for; None where nothing fired."""
    context_allowed: Bool[ndarray, "M"]
    primary: dict[str, float]
    """What can be read of the slot."""
    other: dict[str, float] | None
    """What can be read of its context."""
    added: dict[str, float]
    """What the rule changed of it."""
    added_norm: float
    pictures: tuple[UInt8[ndarray, "H W 3"], UInt8[ndarray, "H W 3"]] | None
    """The slot before and after, as the model draws it."""

    def to_json(self, picture: Callable[[Any], str] | None = None) -> dict[str, Any]:
        """As JSON values, where what is not finite is None.

        Args:
            picture: makes a text of a picture, such as a data URL; without it there are none.
        """
        drawn = None
        if picture is not None and self.pictures is not None:
            before, after = map(picture, self.pictures)
            drawn = {"before": before, "after": after, "added": None}
            if (added := difference(*self.pictures)) is not None:
                drawn["added"] = picture(added)
        flip = self.flip and {
            "slot": self.flip.slot,
            "rule": self.flip.rule,
            "size": self.flip.size,
            "relative": self.flip.relative,
            "features": self.flip.features,
        }
        found = {
            "step": self.step,
            "stage": self.stage,
            "slot": self.slot,
            "kind": self.kind,
            "fired": self.fired,
            "rule": self.rule,
            "context": self.context,
            "chooser": self.chooser,
            "scores": self.scores.tolist(),
            "bids": None if self.bids is None else list(self.bids),
            "winner": self.winner._asdict(),
            "rival": None if self.rival is None else self.rival._asdict(),
            "margin": self.margin,
            "forced": self.forced,
            "flip": flip,
            "contexts": None if self.contexts is None else self.contexts.tolist(),
            "context_allowed": self.context_allowed.tolist(),
            "read": {"primary": self.primary, "context": self.other},
            "added": {"features": self.added, "norm": self.added_norm},
            "pictures": drawn,
        }
        finite: dict[str, Any] = _finite(found)
        return finite

    def lines(self) -> list[str]:
        """The explanation in sentences."""
        where = f"step {self.step}" + (f", stage {self.stage}" if self.stage else "")
        if self.fired:
            name = self.slot_names
            context = f" with {name[self.context]} as its context" if self.context >= 0 else ""
            if self.chooser is not None:
                context = f", chosen by {name[self.chooser]}"
            lines = [f"{where}: {self._rule(self.rule)} fired on {name[self.slot]}{context}."]
        else:
            who = f": {self._who(self.winner)} won" if self.winner.slot != self.slot else ""
            lines = [f"{where}: nothing fired on {self.slot_names[self.slot]}{who}."]
        if self.forced:
            lines.append("The choice was made by hand.")
        if self.rival is not None and self.margin is not None:
            lines.append(
                f"{self._who(self.winner)} scores {self.winner.score:.3g}, "
                f"{self._who(self.rival)} {self.rival.score:.3g}: {self.margin:.3g} between them."
            )
        if self.flip is not None:
            to = "nothing fires" if self.flip.rule == NULL else f"{self._who(self.flip)} wins"
            said = _changes(self.flip.features)
            slot = "the slot" if self.chooser is None else self.slot_names[self.chooser]
            what = slot if self.flip.features else "what it is chosen by"
            lines.append(
                f"If {what} changed by {self.flip.size:.3g} "
                f"({self.flip.relative:.1%} of its length{said and ': ' + said}), {to}."
            )
        if self.fired and (said := _changes(self.added)):
            lines.append(f"The rule changed {said}.")
        return lines

    def _rule(self, rule: int) -> str:
        return "the null rule" if rule == NULL else self.names[rule]

    def _who(self, choice: Choice | Flip) -> str:
        if self.kind != "sequential" or choice.rule == NULL or self.chooser is not None:
            return self._rule(choice.rule)
        return f"{self._rule(choice.rule)} on {self.slot_names[choice.slot]}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *later = map(escape, self.lines())
        return f"<p><b>{first}</b><br>{'<br>'.join(later)}</p>"


def _changes(features: dict[str, float]) -> str:
    """The largest changes in words: "row +0.2, column −0.1"."""
    known = {name: value for name, value in features.items() if math.isfinite(value)}
    ranked = sorted(known.items(), key=lambda item: -abs(item[1]))[:SHOWN]
    most = abs(ranked[0][1]) if ranked else 0.0
    shown = [f"{name} {value:+.2g}" for name, value in ranked if abs(value) > 0.01 * most]
    return ", ".join(shown)


def _finite(value: Any) -> Any:
    """The same with None in place of numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value
