"""What `nps eval` shows: the few numbers that matter, each beside its floor, and a verdict.

A floor is what a model reaches that has learned nothing: it copies its input, or uses one rule for
everything. An experiment writes its own headline (`Experiment.headline`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nps.inspect.report import Lines, Table

Metrics = Mapping[str, Any]
"""What `Task.test` returned: the content of test.json."""
CLEAN = 0.99
"""Segregation from which each operation has a rule of its own, but for one use in a hundred."""


@dataclass(frozen=True)
class Headline:
    verdict: str
    """One to three sentences."""
    table: Table
    details: Lines | None = None
    """What to read after the numbers, such as rules as sentences."""


class Row(NamedTuple):
    """One number. Both it and its floor are formatted."""

    name: str
    value: str
    floor: str = "–"
    floor_is: str = "–"
    """What the floor is the result of."""


def numbers_table(rows: Sequence[Row], tested_on: str) -> Table:
    """Numbers beside their floors, and how many examples they are from."""
    return Table(["", "Model", "Floor", "The floor is"], rows, f"Tested on {tested_on}.")


def segregation_row(metrics: Metrics) -> Row:
    """Segregation, beside that of a model that uses one rule for everything."""
    value, floor = metrics["segregation"], one_rule(metrics)
    return Row("Rule segregation", f"{value:.3f}", f"{floor:.3f}", "one rule for everything")


def one_rule(metrics: Metrics) -> float:
    """Segregation of one rule for everything: the share of the most frequent operation."""
    uses: list[int] = [sum(row) for row in metrics["table"]]
    return max(uses) / max(sum(uses), 1)


def segregation_sentence(metrics: Metrics) -> str:
    """Whether each operation has a rule of its own."""
    value = metrics["segregation"]
    if value >= CLEAN:
        return "Each operation has a rule of its own."
    if value <= one_rule(metrics) + 0.01:
        return "The rules are not told apart: one serves every operation."
    return f"Rules are shared: one rule for each operation explains {value:.0%} of the uses."
