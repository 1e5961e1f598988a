"""What a file must hold, as a type: what fits, and how the first thing that does not is named."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import pytest

from nps.schema import fits, problem


class Part(TypedDict):
    size: int


class Whole(TypedDict):
    name: str
    score: NotRequired[float | None]
    parts: NotRequired[list[Part]]
    named: NotRequired[dict[str, Part]]


WHOLE = {"name": "a", "score": None, "parts": [{"size": 1}], "named": {"b": {"size": 2}}}


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (WHOLE, Whole),
        ({"name": "a", "newer": [1]}, Whole),
        (3, int),
        (3, float),
        (0.5, float | None),
        (None, float | None),
        ("a", Literal["a", "b"]),
        ([], list[int]),
        ({}, dict[str, int]),
        ([{"x": 1}], Any),
        (True, bool),
    ],
)
def test_what_fits(value, hint):
    assert fits(value, hint)
    assert problem(value, hint) is None


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        (True, int, "it is True, expected int"),
        (True, float, "it is True, expected float"),
        (0.5, int, "it is 0.5, expected int"),
        ("3", int | None, "it is '3', expected int or none"),
        ("c", Literal["a", "b"], "it is 'c', expected one of a, b"),
        ([1], dict, "it is a list of 1, expected an object"),
        ({}, Whole, "name is missing"),
        ([], Whole, "it is a list of 0, expected an object"),
        ({**WHOLE, "parts": [{"size": 1}, {}]}, Whole, "parts[1].size is missing"),
        ({**WHOLE, "parts": {}}, Whole, "parts is an object, expected a list"),
        ({**WHOLE, "named": {"b": 3}}, Whole, "named.b is 3, expected an object"),
        ({**WHOLE, "score": "x" * 1000}, Whole, f"score is '{'x' * 59}…, expected float or none"),
    ],
)
def test_what_does_not_is_named(value, hint, message):
    assert not fits(value, hint)
    assert problem(value, hint) == message
