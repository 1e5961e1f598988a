"""What fired when, as a small picture: a column for each step and stage, a row for each slot.

It is SVG without scripts or outside files, so that it shows in any notebook, and in its export.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from nps.inspect.playback import Record

if TYPE_CHECKING:
    from jaxtyping import Int
    from numpy import ndarray

PALETTE = (
    *("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#8C6BB1"),
    *("#A6761D", "#66A61E", "#1B3A5B", "#B2DF8A"),
)
"""Okabe and Ito's colours, which stay apart for the colour-blind, and more."""
NOTHING = "#ECECEC"
CELL, WIDEST, LABEL = 12, 900, 60
MOST_COLUMNS = 400
"""Columns of one picture; of longer records the first are shown."""


def colour(rule: int) -> str:
    """The colour of a rule; grey for none."""
    return NOTHING if rule < 0 else PALETTE[rule % len(PALETTE)]


def of_record(
    record: Record, rule_names: Sequence[str] = (), slot_names: Sequence[str] = ()
) -> str:
    """The raster of a record as SVG."""
    steps, stages, slots, rules = record.sizes
    columns = record.rule.reshape(steps * stages, slots)
    names = rule_names or [f"rule {i}" for i in range(rules)]
    return of_columns(columns, stages, names, slot_names or [f"slot {m}" for m in range(slots)])


def of_columns(
    rule: Int[ndarray, "C M"], stages: int, rule_names: Sequence[str], slot_names: Sequence[str]
) -> str:
    """The raster as SVG.

    Args:
        rule: that fired, for each step and stage, on each slot; -1 for none.
        stages: columns of a step.
        rule_names, slot_names: for the legend and the rows.
    """
    left_out = len(rule) - MOST_COLUMNS
    shown = np.asarray(rule[:MOST_COLUMNS])
    count, slots = shown.shape
    cell = max(2.0, min(CELL, (WIDEST - LABEL) / max(1, count)))
    used = [int(i) for i in np.unique(shown[shown >= 0])]
    per_row = max(1, int(max(count * cell, 300) // 90))
    rows = -(-len(used) // per_row)
    width = max(LABEL + count * cell, LABEL + 90 * min(per_row, len(used))) + 4
    height = slots * CELL + 20 + 16 * rows
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="10" role="img">'
        "<title>The rule that fired on each slot (rows) at each step (columns)</title>"
    ]
    for m in range(slots):
        y = m * CELL
        label = escape(slot_names[m][:10])
        parts.append(f'<text x="{LABEL - 4}" y="{y + 9}" text-anchor="end">{label}</text>')
        parts += [
            f'<rect x="{LABEL + begin * cell:.1f}" y="{y}" width="{(end - begin) * cell:.1f}" '
            f'height="{CELL - 1}" fill="{colour(i)}"><title>{_told(i, rule_names)}</title></rect>'
            for begin, end, i in _runs(shown[:, m])
        ]
    every = _tick(count // stages, cell * stages)
    for t in range(0, count // stages, every):
        x = LABEL + t * stages * cell
        parts.append(f'<text x="{x:.1f}" y="{slots * CELL + 10}">{t}</text>')
    for n, i in enumerate(used):
        x, y = LABEL + 90 * (n % per_row), slots * CELL + 18 + 16 * (n // per_row)
        parts.append(
            f'<rect x="{x}" y="{y}" width="10" height="10" fill="{colour(i)}"/>'
            f'<text x="{x + 14}" y="{y + 9}">{escape(rule_names[i][:13])}</text>'
        )
    note = f"<p>the first {MOST_COLUMNS} columns of {len(rule)}</p>" if left_out > 0 else ""
    return "".join([*parts, "</svg>", note])


def _runs(row: Int[ndarray, "C"]) -> list[tuple[int, int, int]]:
    """Begin, end and value of each run of equal values."""
    edges = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    pairs = itertools.pairwise(edges)
    return [(begin, end, int(row[begin])) for begin, end in pairs]


def _tick(steps: int, width: float) -> int:
    """How many steps apart the numbers stand, so that they do not touch."""
    for every in (1, 2, 5, 10, 20, 50, 100):
        if every * width >= 24:
            return every
    return max(1, steps)


def _told(rule: int, names: Sequence[str]) -> str:
    return "nothing" if rule < 0 else escape(names[rule])
