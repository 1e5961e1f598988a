"""A trace as a table to read, in a terminal or a notebook: one row a stage, one column a slot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

NOTHING = "·"
LONGEST = 24
"""Most characters of a rule's name."""


class Table(NamedTuple):
    """The choices of one batch element. Print it, or let a notebook show it."""

    caption: str
    rule: list[list[int]]
    """The rule that fired at each stage (row) on each slot (column), or -1."""
    context: list[list[int]]
    """The slot that it took as its context, or -1."""
    names: list[str] | None
    hidden: str
    """What was left out, or nothing."""

    @classmethod
    def of(
        cls,
        caption: str,
        rule: list[list[int]],
        context: list[list[int]],
        names: Sequence[str] | None,
        limit: int,
    ) -> Table:
        """The first stages and slots, at most `limit` of each."""
        stages, slots, hidden = len(rule), len(rule[0]), ""
        if max(stages, slots) > limit:
            shown = f"the first {min(limit, stages)} stages and {min(limit, slots)} slots"
            hidden = f"{shown} of {stages} and {slots}"
        rule, context = ([row[:limit] for row in part[:limit]] for part in (rule, context))
        return cls(caption, rule, context, None if names is None else list(names), hidden)

    def __repr__(self) -> str:
        rows = [["stage", *(f"slot {m}" for m in range(len(self.rule[0])))]]
        rows += [[str(k), *cells] for k, cells in enumerate(self._cells("", ""))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([self.caption, *lines, *filter(None, [self.hidden])])

    def _repr_html_(self) -> str:
        lines = filter(None, [*self.caption.splitlines(), self.hidden])
        caption = "<br>".join(map(escape, lines))
        head = "".join(f"<th>slot {m}</th>" for m in range(len(self.rule[0])))
        rows = [
            f"<tr><th>stage {k}</th>" + "".join(f"<td>{escape(x)}</td>" for x in cells) + "</tr>"
            for k, cells in enumerate(self._cells("rule ", "slot "))
        ]
        return f"<table><caption>{caption}</caption><tr><th></th>{head}</tr>{''.join(rows)}</table>"

    def _cells(self, rule: str, slot: str) -> Iterator[list[str]]:
        """The cells of each row; the two words are put before numbers."""
        for rules, contexts in zip(self.rule, self.context, strict=True):
            cells = []
            for i, context in zip(rules, contexts, strict=True):
                name = f"{rule}{i}" if self.names is None else _short(self.names[i])
                read = "" if context < 0 else f" ← {slot}{context}"
                cells.append(NOTHING if i < 0 else name + read)
            yield cells


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
