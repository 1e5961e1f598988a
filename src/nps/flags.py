"""Parse flags into dataclasses with tyro, and fold its errors into one line."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from typing import TypeVar

import tyro

from nps.errors import UserError

T = TypeVar("T")


def parse(cls: type[T], args: Sequence[str], *, prog: str, about: str) -> T:
    """Parse `args` into `cls`; `--help` prints and exits 0, mistakes are a one-line `UserError`."""
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            parsed: T = tyro.cli(cls, args=list(args), prog=prog, description=about)
    except SystemExit as stop:
        if stop.code == 0:
            raise
        raise UserError(f"{prog}: {_one_line(stderr.getvalue())}") from None
    except ValueError as error:  # it parses, but its values are invalid
        raise UserError(f"{prog}: {error}") from None
    return parsed


def _one_line(message: str) -> str:
    """Shorten tyro's message, which has a title, the error, and sometimes similar flags.

    It comes in a box if the terminal has UTF-8, and with lines of dashes otherwise.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m|╭─.*─╮|[│╰╯]", "", message)
    sections = re.split(r"[─-]{5,}", " ".join(plain.split()))
    has_title = "╭" not in message
    error = sections[1 if has_title and len(sections) > 1 else 0]
    hint = next((part for part in sections if "Perhaps you meant" in part), "")
    flags = re.findall(r"--[\w.-]+", hint)
    suggestion = f"; did you mean {flags[0]}?" if flags else ""
    return error.strip().rstrip(".") + suggestion
