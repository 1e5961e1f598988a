"""Tables in a terminal: names and numbers stay whole, and columns that do not fit go into another
table below. rich itself would cut the names of the rows to a few letters.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from nps.inspect.parts import Table

FRAME = 3
"""Width of a column besides its text: two blanks and a line."""
NUMBER = 12
"""Cells up to this width are never broken; longer ones are, between words."""
SHARE = 0.4
"""Most of the width that the names of the rows may take."""


def show_table(table: Table, console: Console) -> None:
    """Print the table; a wide one becomes several, each with the names of the rows."""
    natural = {c: max(_longest(_texts(table, c)), 1) for c in range(len(table.columns))}
    room = console.width - 1
    if sum(width + FRAME for width in natural.values()) <= room:
        console.print(_rich(table, natural))
    else:
        for widths in _fitted(table, natural, room):
            console.print(_rich(table, widths))
    if table.caption:
        console.print(table.caption, style="table.caption", markup=False, highlight=False)


def _fitted(table: Table, natural: dict[int, int], room: int) -> list[dict[int, int]]:
    """Column -> width, for each of the tables."""
    names, numbers = range(table.names), range(table.names, len(table.columns))
    widths = {c: _narrow(table, c) for c in numbers}
    left = int(SHARE * room) // table.names - FRAME
    widths |= {c: min(natural[c], max(left, _longest(_words(_texts(table, c))))) for c in names}
    taken = sum(widths[c] + FRAME for c in names)
    parts = _parts({c: widths[c] for c in numbers}, room - taken)
    slack = room - taken - max(sum(widths[c] + FRAME for c in part) for part in parts)
    widths[0] += max(0, min(slack, natural[0] - widths[0]))
    return [{c: widths[c] for c in (*names, *part)} for part in parts]


def _narrow(table: Table, column: int) -> int:
    """The least width that keeps numbers whole; headings may break between words."""
    cells = [row[column] for row in table.rows]
    words = _longest(_words([table.columns[column], *cells]))
    return max(min(_longest(cells), NUMBER), words, 1)


def _parts(widths: dict[int, int], room: int) -> list[list[int]]:
    """Split the columns, in order, into groups that fit; each has at least one."""
    parts: list[list[int]] = [[]]
    used = 0
    for column, width in widths.items():
        if parts[-1] and used + width + FRAME > room:
            parts.append([])
            used = 0
        parts[-1].append(column)
        used += width + FRAME
    return parts


def _rich(table: Table, widths: dict[int, int]) -> RichTable:
    shown = RichTable()
    for c, width in widths.items():
        shown.add_column(
            escape(table.columns[c]),
            justify="right" if c else "left",
            width=width,
            overflow="fold",
        )
    for row in table.rows:
        shown.add_row(*(escape(row[c]) for c in widths))
    return shown


def _texts(table: Table, column: int) -> list[str]:
    return [table.columns[column], *(row[column] for row in table.rows)]


def _words(texts: Sequence[str]) -> list[str]:
    return [word for text in texts for word in text.split()]


def _longest(texts: Sequence[str]) -> int:
    return max(map(len, texts), default=0)
