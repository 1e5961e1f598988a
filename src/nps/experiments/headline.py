"""What `nps eval` shows: the few numbers that matter, each next to its floor, and a verdict.

A floor is the score of a model that has learned nothing: it copies its input, or uses one rule for
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
"""Segregation above which each operation counts as having a rule of its own."""


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
    """The model that has this score."""


def numbers_table(rows: Sequence[Row], tested_on: str) -> Table:
    """Numbers next to their floors, and what they were measured on."""
    return Table(["", "Model", "Floor", "The floor is"], rows, f"Tested on {tested_on}.")


def segregation_row(metrics: Metrics) -> Row:
    """Segregation, next to that of a model that uses one rule for everything."""
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
        return "The rules have not specialised: one serves every operation."
    return f"Rules are shared: one rule for each operation explains {value:.0%} of the uses."


def error_sentence(error: float, floor: float, floor_is: str) -> str:
    """The error relative to its floor."""
    if error < floor:
        return f"The error is {error / floor:.2g} times that of {floor_is}."
    return f"No better than {floor_is}: it has not learned the operations."
