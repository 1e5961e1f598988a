"""One-line messages to the user: errors, warnings and hints."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable


class UserError(ValueError):
    """The user's input is wrong: one line, exit code 2, no traceback."""


class RunFailed(RuntimeError):
    """A run cannot continue (non-finite loss, full disk): one line, exit code 1."""


def say(text: str) -> None:
    """Print one line to stderr, even if a name in it has line breaks; stdout is for results."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    print(f"nps: {line}", file=sys.stderr)


def extra(name: str) -> str:
    """How to install an optional dependency."""
    return (
        f"pip install 'neural-production-systems[{name}]' (in a clone: pip install -e '.[{name}]')"
    )


def nearest(name: str, names: Iterable[str]) -> str:
    """The hint "; did you mean X?" for a mistyped name, or all choices if none is similar."""
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(names)}"
