"""What is told to the user in one line: errors, and a word on the way."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable


class UserError(ValueError):
    """Something in the input is wrong: one line, exit code 2, no traceback."""


class RunFailed(RuntimeError):
    """A run could not go on (non-finite loss, full disk): one line, exit code 1."""


def say(text: str) -> None:
    """A line on stderr; what a command answers goes to stdout."""
    print(f"nps: {text}", file=sys.stderr)


def extra(name: str) -> str:
    """How to install what a part needs that not everybody wants."""
    return (
        f"pip install 'neural-production-systems[{name}]' (in a clone: pip install -e '.[{name}]')"
    )


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint "; did you mean X?" for a mistyped name, or the choices when nothing is near."""
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(names)}"
