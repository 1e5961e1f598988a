"""Check values read from JSON against a type: `list[Session]`, `float | None`, a TypedDict.

The owner of a file declares its content as a TypedDict next to the code that writes it, and
`nps.reading` checks the file against it. Unknown keys are ignored: a newer version may have
written them.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any

SHORT = 60
"""Longest value that an error message quotes."""


def fits(value: object, hint: Any) -> bool:
    """Whether a value read from JSON has the type of a hint."""
    return problem(value, hint) is None


def problem(value: object, hint: Any, name: str = "") -> str | None:
    """What is wrong with a value and where, such as `seed is 'x', expected int`; or None."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return None
    if typing.is_typeddict(hint):
        return _problem_of_fields(value, hint, name)
    if origin in (typing.Union, types.UnionType):
        right = any(fits(value, arg) for arg in args)
    elif origin is typing.Literal:
        right = value in args
    elif origin is list and isinstance(value, list):
        parts = ((f"{name}[{i}]", item, args[0]) for i, item in enumerate(value))
        return _first_problem(parts)
    elif origin is dict and isinstance(value, dict):
        return _first_problem((_below(name, key), item, args[1]) for key, item in value.items())
    elif hint in (int, float):
        allowed = (int,) if hint is int else (int, float)
        right = isinstance(value, allowed) and not isinstance(value, bool)
    else:
        right = isinstance(value, origin or hint)
    return None if right else f"{name or 'it'} is {shown(value)}, expected {spell(hint)}"


def _problem_of_fields(value: object, hint: Any, name: str) -> str | None:
    if not isinstance(value, dict):
        return f"{name or 'it'} is {shown(value)}, expected an object"
    fields, required = _fields(hint)
    missing = [field for field in fields if field in required and field not in value]
    if missing:
        names = ", ".join(_below(name, field) for field in missing)
        return f"{names} {'is' if len(missing) == 1 else 'are'} missing"
    there = (
        (_below(name, field), value[field], fields[field]) for field in fields if field in value
    )
    return _first_problem(there)


def _first_problem(parts: typing.Iterable[tuple[str, object, Any]]) -> str | None:
    found = (problem(value, hint, name) for name, value, hint in parts)
    return next((what for what in found if what is not None), None)


@functools.cache
def _fields(hint: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The types of a TypedDict's fields, and those that must be there."""
    marked = typing.get_type_hints(hint, include_extras=True)
    # Its own __required_keys__ misses NotRequired where annotations are strings.
    optional = {
        name for name, kind in marked.items() if typing.get_origin(kind) is typing.NotRequired
    }
    return typing.get_type_hints(hint), frozenset(hint.__required_keys__) - optional


def _below(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def shown(value: object) -> str:
    """A value short enough for one line, or what it is."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"


def spell(hint: Any) -> str:
    """A type in words."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(str, args))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(spell(arg) for arg in args)
    if typing.is_typeddict(hint) or typing.get_origin(hint) is dict or hint is dict:
        return "an object"
    if typing.get_origin(hint) is list or hint is list:
        return "a list"
    return "none" if hint is type(None) else str(hint.__name__)
