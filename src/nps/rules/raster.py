"""What fired when, as a small picture: a column for each moment, a row for each slot.

It is SVG without scripts or outside files, so that it shows in any notebook and in its export.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from html import escape

HUES = (
    *((0, 114, 178), (230, 159, 0), (0, 158, 115), (213, 94, 0)),
    *((86, 180, 233), (204, 121, 167), (240, 228, 66), (136, 34, 85)),
)
"""Okabe and Ito's, which stay apart for the colour-blind, with wine in place of black."""
TOWARDS = ((0, 0.0), (255, 0.5), (0, 0.42), (255, 0.25))
"""Grey level and share of it that is mixed in, for each further eight rules."""
NOTHING = "#ececec"
CELL, WIDEST, LABEL, LEGEND = 12, 900, 60, 90
LONGEST = 13
"""Most characters of a name."""


def colour(rule: int) -> str:
    """The colour of a rule, the same wherever it is shown; grey for none."""
    if rule < 0:
        return NOTHING
    level, share = TOWARDS[rule // len(HUES) % len(TOWARDS)]
    mixed = (round(part + (level - part) * share) for part in HUES[rule % len(HUES)])
    return "#" + "".join(f"{part:02x}" for part in mixed)


def raster(
    columns: Sequence[Sequence[int]],
    rule_names: Sequence[str],
    slot_names: Sequence[str],
    *,
    every: int = 1,
    most: int = 6_000,
) -> str:
    """The picture as SVG.

    Args:
        columns: of each moment, the rule that fired on each slot; -1 for none.
        rule_names: of all rules, for the legend.
        slot_names: of the rows.
        every: columns that have one number below them, such as the stages of a step.
        most: cells that are drawn; of more, the first columns.
    """
    slots = len(slot_names)
    shown = columns[: max(every, most // max(1, slots))]
    count, used = len(shown), sorted({rule for column in shown for rule in column if rule >= 0})
    cell = max(2.0, min(CELL, (WIDEST - LABEL) / max(1, count)))
    per_row = max(1, int(max(count * cell, 3 * LEGEND) // LEGEND))
    width = LABEL + max(count * cell, LEGEND * min(per_row, len(used))) + 4
    height = slots * CELL + 20 + 16 * -(-len(used) // per_row)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="10" '
        f'fill="currentColor" role="img"><title>{_title(count, len(columns))}</title>',
        f'<rect x="{LABEL}" width="{count * cell:.1f}" height="{slots * CELL - 1}" '
        f'fill="{NOTHING}"/>',
        *(
            f'<text x="{LABEL - 4}" y="{CELL * m + 9}" text-anchor="end">{_short(name)}</text>'
            for m, name in enumerate(slot_names)
        ),
        *(f'<path fill="{colour(rule)}" d="{_path(shown, rule, cell)}"/>' for rule in used),
    ]
    for t in range(0, count // every, _apart(cell * every)):
        x, y = LABEL + t * every * cell, slots * CELL + 10
        parts.append(f'<text x="{x:.0f}" y="{y}">{t}</text>')
    for n, rule in enumerate(used):
        x, y = LABEL + LEGEND * (n % per_row), slots * CELL + 18 + 16 * (n // per_row)
        parts.append(
            f'<rect x="{x}" y="{y}" width="10" height="10" fill="{colour(rule)}"/>'
            f'<text x="{x + 14}" y="{y + 9}">{_short(rule_names[rule])}</text>'
        )
    return "".join([*parts, "</svg>"])


def _path(columns: Sequence[Sequence[int]], rule: int, cell: float) -> str:
    """All cells of a rule, neighbours in a row joined."""
    return "".join(
        f"M{LABEL + begin * cell:.4g} {CELL * m}h{(end - begin) * cell:.4g}v{CELL - 1}"
        f"h{(begin - end) * cell:.4g}z"
        for m in range(len(columns[0]))
        for begin, end in _runs([column[m] == rule for column in columns])
    )


def _runs(row: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of true entries."""
    at = 0
    for true, group in itertools.groupby(row):
        length = len(list(group))
        if true:
            yield at, at + length
        at += length


def _apart(width: float) -> int:
    """How many numbers apart those are that are written, so that they do not touch."""
    return next((every for every in (1, 2, 5, 10, 20, 50, 100) if every * width >= 24), 1_000)


def _title(shown: int, count: int) -> str:
    part = "" if shown == count else f", the first {shown} of {count}"
    return f"The rule that fired on each slot (rows) at each moment (columns{part})"


def _short(name: str) -> str:
    return escape(name if len(name) <= LONGEST else name[: LONGEST - 1] + "…")
