"""`nps models` in a terminal of the usual width."""

from __future__ import annotations

from nps import zoo
from tests.zoo.made import commands


def test_every_model_that_ships_has_one_line(monkeypatch):
    """A row that is broken apart is hard to read: name, size, test and floor stand together."""
    monkeypatch.setenv("COLUMNS", "80")
    out, _ = commands("models")
    for name in zoo.names():
        (row,) = [line for line in out.splitlines() if line.startswith(f"│ {name} ")]
        number, floor = row.split("│")[3:5]
        assert any(letter.isdigit() for letter in number)
        assert any(letter.isdigit() for letter in floor)
