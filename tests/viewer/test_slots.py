"""Slots have one name on the whole page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nps.viewer.slots import slot_names

ACTIONS = ["block 0 up", "block 0 down", "block 1 up", "block 1 down"]
COUNTED = ("slot 0", "slot 1")


@pytest.mark.parametrize(
    ("keys", "names", "expected"),
    [
        ({"w": [2, 0], "s": [3, 1]}, COUNTED, ("block 1", "block 0")),
        ({" ": [0], "w": [2, 0]}, COUNTED, ("block 1", "block 0")),
        ({"w": [2, 0]}, ("red cube", "green cone"), ("red cube", "green cone")),
        ({"w": [0]}, COUNTED, COUNTED),
        ({"w": [0, 1]}, COUNTED, COUNTED),  # both of block 0
        ({"w": [0]}, ("slot 0",), ("slot 0",)),
        ({}, COUNTED, COUNTED),
    ],
)
def test_slots_are_called_by_what_their_keys_move(keys: Any, names: Any, expected: Any) -> None:
    bench: Any = SimpleNamespace(actions=ACTIONS, keys=keys)
    assert slot_names(bench, names) == expected
