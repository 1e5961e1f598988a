"""A report is a list of blocks: text for the terminal, or one self-contained HTML page."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from nps.errors import UserError
from nps.inspect.terminal import show_table

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.2rem }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right }
th:first-child, td:first-child { text-align: left }
th { background: var(--soft); vertical-align: bottom }
caption { caption-side: bottom; text-align: left; font-size: .88rem; padding-top: .4rem }
caption, figcaption { opacity: .8 }
.scroll { overflow-x: auto }
img { max-width: 100%; background: white; border-radius: 4px }
pre { background: var(--soft); padding: .8rem; white-space: pre-wrap; border-radius: 4px }
"""


END = "<!-- end -->"


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Lines:
    """Preformatted lines: rules in words, commands."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    """The first column is text, the rest are numbers or text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    name: str = ""
    """If it has one, documents may ask for it beside the first table of a report."""
    names: int = 1
    """So many columns say what a row is of."""


@dataclass(frozen=True)
class Figure:
    """A PNG and what it shows. The terminal gets the words only."""

    name: str
    png: bytes
    caption: str


Block = Heading | Text | Lines | Table | Figure


@dataclass
class Report:
    title: str
    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> None:
        self.blocks += blocks

    def to_html(self) -> str:
        body = "\n".join(_html(block) for block in self.blocks)
        title = html.escape(self.title)
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
            f"<h1>{title}</h1>\n{body}\n</body>\n</html>\n"
        )

    def write(self, folder: Path) -> Path:
        """report.html, and its figures as files of their own."""
        for block in self.blocks:
            if isinstance(block, Figure):
                (folder / "figures").mkdir(exist_ok=True)
                (folder / "figures" / f"{block.name}.png").write_bytes(block.png)
        page = folder / "report.html"
        page.write_text(self.to_html())
        return page

    def show(self, console: Console) -> None:
        console.rule(self.title)
        for block in self.blocks:
            _show(block, console)


def markdown(table: Table) -> str:
    """The table for README and docs."""
    head = "| " + " | ".join(table.columns) + " |"
    rule = "| --- |" + " ---: |" * (len(table.columns) - 1)
    rows = ["| " + " | ".join(row) + " |" for row in table.rows]
    return "\n".join([head, rule, *rows])


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h2>{html.escape(block.text)}</h2>"
    if isinstance(block, Text):
        return f"<p>{html.escape(block.text)}</p>"
    if isinstance(block, Lines):
        return "<pre>" + html.escape("\n".join(block.lines)) + "</pre>"
    if isinstance(block, Figure):
        data = base64.b64encode(block.png).decode()
        caption = html.escape(block.caption)
        return (
            f'<figure><img alt="{caption}" src="data:image/png;base64,{data}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    head = "".join(f"<th>{html.escape(column)}</th>" for column in block.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>\n"
        for row in block.rows
    )
    caption = f"<caption>{html.escape(block.caption)}</caption>" if block.caption else ""
    return f'<div class="scroll"><table>{caption}<tr>{head}</tr>\n{rows}</table></div>'


def _cell(text: str) -> str:
    """A mean and its deviation stay on one line."""
    return html.escape(text).replace(" ± ", "&nbsp;±&nbsp;")


def _show(block: Block, console: Console) -> None:
    if isinstance(block, Heading):
        console.print(f"\n{block.text}", style="bold", markup=False)
    elif isinstance(block, Text):
        console.print(block.text, markup=False)
    elif isinstance(block, Lines):
        for line in block.lines:
            console.print("  " + line, markup=False, highlight=False, soft_wrap=True)
    elif isinstance(block, Figure):
        console.print(f"{block.caption} (figures/{block.name}.png)", markup=False)
    elif isinstance(block, Table):
        show_table(block, console)


def put_into(path: Path, experiment: str, tables: Sequence[Table]) -> None:
    """Replace what stands between `<!-- table: experiment -->` and `<!-- end -->` in a document.

    That is the first table; one with a name comes where `<!-- table: experiment name -->` asks for
    it.
    """
    document = path.read_text()
    for table in tables:
        first = table is tables[0]
        begin = f"<!-- table: {experiment if first else f'{experiment} {table.name}'} -->"
        head, found, rest = document.partition(begin)
        _, closed, tail = rest.partition(END)
        if found and closed:
            document = f"{head}{begin}\n{markdown(table)}\n{END}{tail}"
        elif first or found:
            raise UserError(f"{path}: has no {begin} … {END}")
    path.write_text(document)
