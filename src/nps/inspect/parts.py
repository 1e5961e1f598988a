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
    """A picture (PNG), or a moving one (GIF), and its caption; a terminal shows the caption."""

    name: str
    image: bytes
    caption: str

    @property
    def suffix(self) -> str:
        """Of its file: `.png` or `.gif`."""
        return ".gif" if self.image.startswith(b"GIF8") else ".png"


Part = Heading | Text | Lines | Table | Figure
