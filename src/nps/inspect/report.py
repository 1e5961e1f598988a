"""A report is a list of parts, shown in a terminal or written as one self-contained HTML page."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from nps.errors import UserError
from nps.inspect.parts import Figure, Heading, Lines, Part, Table, Text
from nps.inspect.terminal import show_table

__all__ = [
    "Figure",
    "Heading",
    "Lines",
    "Part",
    "Report",
    "Table",
    "Text",
    "markdown",
    "put_into",
]

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


@dataclass
class Report:
    title: str
    parts: list[Part] = field(default_factory=list)

    def add(self, *parts: Part) -> None:
        self.parts += parts

    def to_html(self) -> str:
        body = "\n".join(_html(part) for part in self.parts)
        title = html.escape(self.title)
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
            f"<h1>{title}</h1>\n{body}\n</body>\n</html>\n"
        )

    def write(self, folder: Path) -> Path:
        """Write report.html, and every figure as a file of its own; returns the page's path."""
        for part in self.parts:
            if isinstance(part, Figure):
                (folder / "figures").mkdir(exist_ok=True)
                (folder / "figures" / f"{part.name}{part.suffix}").write_bytes(part.image)
        page = folder / "report.html"
        page.write_text(self.to_html())
        return page

    def show(self, console: Console) -> None:
        console.rule(self.title)
        for part in self.parts:
            _show(part, console)


def markdown(table: Table) -> str:
    """The table as Markdown, for README and docs."""
    head = "| " + " | ".join(table.columns) + " |"
    rule = "|" + " --- |" * table.names + " ---: |" * (len(table.columns) - table.names)
    rows = ["| " + " | ".join(row) + " |" for row in table.rows]
    return "\n".join([head, rule, *rows])


def _html(part: Part) -> str:
    if isinstance(part, Heading):
        return f"<h2>{html.escape(part.text)}</h2>"
    if isinstance(part, Text):
        return f"<p>{html.escape(part.text)}</p>"
    if isinstance(part, Lines):
        return "<pre>" + html.escape("\n".join(part.lines)) + "</pre>"
    if isinstance(part, Figure):
        data = base64.b64encode(part.image).decode()
        caption, kind = html.escape(part.caption), part.suffix[1:]
        return (
            f'<figure><img alt="{caption}" src="data:image/{kind};base64,{data}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    head = "".join(f"<th>{html.escape(column)}</th>" for column in part.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>\n" for row in part.rows
    )
    caption = f"<caption>{html.escape(part.caption)}</caption>" if part.caption else ""
    return f'<div class="scroll"><table>{caption}<tr>{head}</tr>\n{rows}</table></div>'


def _cell(text: str) -> str:
    """Keep a mean and its deviation on one line."""
    return html.escape(text).replace(" ± ", "&nbsp;±&nbsp;")


def _show(part: Part, console: Console) -> None:
    if isinstance(part, Heading):
        console.print(f"\n{part.text}", style="bold", markup=False)
    elif isinstance(part, Text):
        console.print(part.text, markup=False)
    elif isinstance(part, Lines):
        for line in part.lines:
            console.print("  " + line, markup=False, highlight=False, soft_wrap=True)
    elif isinstance(part, Figure):
        console.print(f"{part.caption} (figures/{part.name}{part.suffix})", markup=False)
    elif isinstance(part, Table):
        show_table(part, console)


def put_into(path: Path, tables: Mapping[str, Table]) -> list[str]:
    """Put tables into a document, each between `<!-- table: NAME -->` and `<!-- end -->`.

    A document need not show every table, but must show one. Returns the names of those it shows.
    """
    document = path.read_text()
    shown = []
    for name, table in tables.items():
        begin = f"<!-- table: {name} -->"
        head, found, rest = document.partition(begin)
        _, closed, tail = rest.partition(END)
        if found and not closed:
            raise UserError(f"{path}: {begin} has no {END}")
        if found:
            document = f"{head}{begin}\n{markdown(table)}\n{END}{tail}"
            shown.append(name)
    if not shown:
        names = " or ".join(f"<!-- table: {name} -->" for name in tables)
        raise UserError(f"{path}: has no {names}")
    path.write_text(document)
    return shown
