"""Flags to dataclasses through tyro, with its errors folded into one line."""

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
    """Parse `args` into `cls`; `--help` prints and exits 0, a mistake is a one-line `UserError`."""
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            parsed: T = tyro.cli(cls, args=list(args), prog=prog, description=about)
    except SystemExit as stop:
        if stop.code == 0:
            raise
        raise UserError(f"{prog}: {_one_line(stderr.getvalue())}") from None
    except ValueError as error:  # a config that parses but cannot be
        raise UserError(f"{prog}: {error}") from None
    return parsed


def _one_line(message: str) -> str:
    """tyro's message: a title, the error, and sometimes the flags that were meant.

    It is a box where the terminal speaks UTF-8, and has plain rules of dashes elsewhere.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m|╭─.*─╮|[│╰╯]", "", message)
    sections = re.split(r"[─-]{5,}", " ".join(plain.split()))
    titled = "╭" not in message
    error = sections[1 if titled and len(sections) > 1 else 0]
    hint = next((part for part in sections if "Perhaps you meant" in part), "")
    flags = re.findall(r"--[\w.-]+", hint)
    meant = f"; did you mean {flags[0]}?" if flags else ""
    return error.strip().rstrip(".") + meant
