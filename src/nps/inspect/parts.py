"""What a report is made of: headings, text, lines, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Text:
    """One paragraph."""

    text: str


@dataclass(frozen=True)
class Lines:
    """Preformatted lines: rules in words, commands."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Cells are text, with numbers already formatted."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    name: str = ""
    """Documents can show a table by its name; the first table of a report needs none."""
    names: int = 1
    """Number of leading columns that name the row."""


@dataclass(frozen=True)
class Figure:
    """A PNG and its caption. A terminal shows the caption only."""

    name: str
    png: bytes
    caption: str


Part = Heading | Text | Lines | Table | Figure
