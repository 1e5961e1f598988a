"""Tables of the rules of a trained model: their names, uses and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nps.inspect.report import Table
from nps.rules import RuleSet

if TYPE_CHECKING:
    from jaxtyping import Int
    from numpy import ndarray


def usage(
    operations: Sequence[str],
    table: Int[ndarray, "O N"] | list[list[int]],
    caption: str,
    paper: Sequence[Sequence[int]] | None = None,
) -> Table:
    """Uses by operation and rule, beside the paper's where there are any."""
    columns = ["", *(f"rule {i}" for i in range(len(table[0])))]
    if paper:
        columns += [f"paper {i + 1}" for i in range(len(paper[0]))]
    rows = []
    for o, operation in enumerate(operations):
        theirs = [] if paper is None else paper[o] if o < len(paper) else ["–"] * len(paper[0])
        rows.append([operation, *map(str, [*table[o], *theirs])])
    return Table(columns, rows, caption)


def rule_table(
    rules: RuleSet, operations: Sequence[str], table: Int[ndarray, "O N"] | list[list[int]]
) -> Table:
    """One row per rule: its name, the operations that mostly use it, its parameters."""
    favourite = [max(range(len(uses)), key=list(uses).__getitem__) for uses in table]
    each = sum(parameter[0].numel() for parameter in rules.parameters())
    rows = []
    for i, name in enumerate(rules.names):
        serves = [o for o, rule in zip(operations, favourite, strict=True) if rule == i]
        uses = sum(int(row[i]) for row in table)
        frozen = "yes" if i in rules.frozen else "no"
        rows.append([str(i), name, ", ".join(serves) or "–", str(uses), str(each), frozen])
    caption = "Serves: the operations that use this rule more than any other."
    return Table(["Rule", "Name", "Serves", "Uses", "Parameters", "Frozen"], rows, caption)
