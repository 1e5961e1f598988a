"""What is changed by hand in a model, or in one of its episodes: the edits of the workbench.

Edits are plain data: they travel in an address, are saved with an edited run, and the same edits
give the same roll-out. `lasting` are those that change the model itself; the others change what
happens at one step of one episode.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from nps.errors import UserError

MOST = 1_000
"""Entries of each kind, so that edits from outside stay small."""
FARTHEST = 1e6


@dataclass(frozen=True)
class Forced:
    """A choice made by hand, at one step and stage, for one slot."""

    step: int
    slot: int
    stage: int = 0
    rule: int | None = None
    """The rule that fires; -1 for none; None leaves the choice to the model."""
    context: int | None = None
    """The contextual slot; None leaves the choice to the model."""


@dataclass(frozen=True)
class Placed:
    """A feature of a slot that is set before a step, such as the row that its object is in."""

    step: int
    slot: int
    feature: str
    value: float


@dataclass(frozen=True)
class Added:
    """What a rule adds to a feature whenever it fires, besides its own update."""

    rule: int
    feature: str
    amount: float


@dataclass(frozen=True)
class Scaled:
    """A factor on everything that a rule adds."""

    rule: int
    factor: float


@dataclass(frozen=True)
class Acted:
    """Another action at a step."""

    step: int
    action: int


@dataclass(frozen=True)
class Edits:
    """All changes to a model and an episode."""

    disabled: tuple[int, ...] = ()
    """Rules that may not fire."""
    scaled: tuple[Scaled, ...] = ()
    added: tuple[Added, ...] = ()
    forced: tuple[Forced, ...] = ()
    placed: tuple[Placed, ...] = ()
    acted: tuple[Acted, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in dataclasses.fields(self))

    @property
    def lasting(self) -> Self:
        """Those that change the model, and can be saved with it."""
        return dataclasses.replace(self, forced=(), placed=(), acted=())

    def first_step(self) -> int:
        """The first step at which anything can differ from the episode without edits."""
        if self.lasting:
            return 0
        at_steps: tuple[Forced | Placed | Acted, ...] = (*self.forced, *self.placed, *self.acted)
        steps = [edit.step for edit in at_steps]
        return min(steps, default=0)

    def to_json(self) -> dict[str, Any]:
        """Only what is not empty, as JSON values."""
        found = dataclasses.asdict(self)
        return {name: list(value) for name, value in found.items() if value}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Edits from outside, every entry checked by type; sizes are checked where it is used."""
        if not isinstance(data, Mapping):
            raise UserError(f"edits: got {type(data).__name__}, expected an object")
        if unknown := set(data) - {field.name for field in dataclasses.fields(cls)}:
            raise UserError(
                f"edits: got {sorted(map(str, unknown))[0]!r}, expected {', '.join(KINDS)}"
            )
        values: dict[str, Any] = {}
        for name, entries in data.items():
            if not isinstance(entries, (list, tuple)) or len(entries) > MOST:
                raise UserError(f"edits: {name}: expected a list of at most {MOST}")
            kind = KINDS[name]
            read = _number if kind is None else lambda x, kind=kind: _entry(kind, x)
            values[name] = tuple(read(entry) for entry in entries)
        return cls(**values)


KINDS: dict[str, Any] = {
    "disabled": None,
    "scaled": Scaled,
    "added": Added,
    "forced": Forced,
    "placed": Placed,
    "acted": Acted,
}


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"edits: got {value!r}, expected a whole number")
    return value


def _entry(kind: Any, data: Any) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(data, Mapping) or not set(data) <= set(fields):
        raise UserError(f"edits: expected objects with {', '.join(fields)}")
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in data:
            if field.default is dataclasses.MISSING:
                raise UserError(f"edits: {name} is missing")
            continue
        value = data[name]
        if field.type == "str":
            if not isinstance(value, str):
                raise UserError(f"edits: {name}: got {value!r}, expected a name")
        elif field.type == "float":
            right = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not right or not math.isfinite(value) or abs(value) > FARTHEST:
                raise UserError(f"edits: {name}: got {value!r}, expected a finite number")
            value = float(value)
        elif value is not None or field.type == "int":
            value = _number(value)
        values[name] = value
    return kind(**values)
