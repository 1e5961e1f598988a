"""The help of a command: its flags with types, descriptions and defaults, by section.

The description of a flag is the string below its dataclass field.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

SECTION = "flags_title"
"""Class attribute that names the section of a config's fields; its bases have sections too."""
COMMAND, EXPERIMENT = "Flags", "This experiment"
"""The sections of classes that name none: a command's own, and an experiment's config."""
COLUMN = 26
"""Column of the descriptions; a longer flag has a line of its own."""
WIDEST = 100
METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True)
class Flag:
    """One flag of a command."""

    field: str
    hint: Any
    about: str
    default: Any
    """`dataclasses.MISSING` if the flag is required."""
    section: str
    metavar: str

    @property
    def name(self) -> str:
        return "--" + self.field.replace("_", "-")

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def is_switch(self) -> bool:
        return self.hint is bool

    @property
    def is_path(self) -> bool:
        return "PATH" in self.metavar

    @property
    def takes_many(self) -> bool:
        return typing.get_origin(self.hint) is tuple


def flags_of(cls: type, values: Any = None) -> Iterator[Flag]:
    """The flags of a dataclass and of the dataclasses in it; defaults are those of `values`."""
    hints = typing.get_type_hints(cls, include_extras=True)
    plain = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        hint, default = plain[field.name], field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if values is not None:
            default = getattr(values, field.name)
        if dataclasses.is_dataclass(hint):
            yield from flags_of(typing.cast(type, hint), default)
            continue
        extras = getattr(hints[field.name], "__metadata__", ())  # tyro.conf.arg(help=…, metavar=…)
        about = field.metadata.get("help") or _attribute(extras, "help") or _doc(cls, field.name)
        metavar = _attribute(extras, "metavar") or _metavar(hint)
        yield Flag(field.name, hint, about, default, _section(cls, field.name), metavar)


def help_text(prog: str, about: str, flags: list[Flag]) -> str:
    """The whole help, as wide as the terminal."""
    width = screen_width()
    parts = [f"{prog} [flags]", fill(about, width)]
    for title in dict.fromkeys(flag.section for flag in flags):
        lines = [f"{title}:"]
        for flag in flags:
            if flag.section == title:
                lines += _flag_lines(flag, width)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def screen_width() -> int:
    return max(40, min(shutil.get_terminal_size().columns, WIDEST))


def fill(text: str, width: int) -> str:
    """Paragraphs filled to the width; those with indented lines, such as examples, stay."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        kept = any(line.startswith(" ") for line in paragraph.splitlines())
        paragraphs.append(
            paragraph if kept else textwrap.fill(paragraph, width, break_on_hyphens=False)
        )
    return "\n\n".join(paragraphs)


def _flag_lines(flag: Flag, width: int) -> list[str]:
    if flag.is_switch:
        name = f"--[no-]{flag.name[2:]}" if flag.default else flag.name
    else:
        name = f"{flag.name} {flag.metavar}"
    about = " ".join(flag.about.split())
    if flag.required:
        about += " Required."
    elif not (flag.default is None or flag.default is False or flag.default == ()):
        default = "yes" if flag.default is True else flag.default
        about += "" if "(default:" in about else f" (default: {default})"
    indent = " " * COLUMN
    lines = textwrap.wrap(
        about, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    head = f"  {name}"
    if len(head) + 1 > COLUMN or not lines:
        return [head, *lines]
    return [head + lines[0][len(head) :], *lines[1:]]


def _attribute(extras: tuple[Any, ...], name: str) -> Any:
    return next((found for extra in extras if (found := getattr(extra, name, None))), None)


def _metavar(hint: Any) -> str:
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "|".join(map(str, options))
    if origin in (typing.Union, types.UnionType):
        return "|".join(_metavar(option) for option in options if option is not type(None))
    if origin is tuple:
        return f"{_metavar(options[0])} …"
    return METAVARS.get(hint, "VALUE")


def _section(cls: type, field: str) -> str:
    """The section of the base class that first defines the field."""
    classes = [each for each in cls.__mro__ if field in inspect.get_annotations(each)]
    other = EXPERIMENT if hasattr(cls, SECTION) else COMMAND
    return str(classes[-1].__dict__.get(SECTION, other))


def _doc(cls: type, field: str) -> str:
    return next((docs[field] for each in cls.__mro__ if field in (docs := _docs(each))), "")


@functools.cache
def _docs(cls: type) -> dict[str, str]:
    """Field -> the string below it in the source of the class."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError):  # made by make_dataclass, or built in
        return {}
    found = {}
    lines = body.body if isinstance(body, ast.ClassDef) else []
    for line, below in itertools.pairwise(lines):
        match line, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
    return found
