"""Flags to dataclasses through tyro, with its errors folded into one line."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import tyro

from nps.errors import UserError

T = TypeVar("T")


def parse(cls: type[T], args: Sequence[str], *, prog: str, about: str) -> T:
    """Parse `args` into `cls`; `--help` prints and exits 0, a mistake is a one-line `UserError`."""
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            parsed: Any = tyro.cli(cls, args=list(args), prog=prog, description=about)
    except SystemExit as stop:
        if stop.code == 0:
            raise
        raise UserError(f"{prog}: {_one_line(stderr.getvalue())}") from None
    except ValueError as error:  # a config that parses but cannot be
        raise UserError(f"{prog}: {error}") from None
    return parsed


def _one_line(boxed: str) -> str:
    """tyro draws a box: first the error, then a rule, then sometimes the flags that were meant."""
    inside = [line.strip("│ ").strip() for line in boxed.splitlines() if line.startswith("│")]
    sections = " ".join(inside)
    first, *rest = re.split(r"─{5,}", sections)
    hint = next((part for part in rest if part.strip().startswith("Perhaps you meant")), "")
    flags = re.findall(r"--[\w.-]+", hint)
    meant = f"; did you mean {flags[0]}?" if flags else ""
    return " ".join(first.split()).rstrip(".") + meant
