"""One-line messages to the user: errors, warnings and hints."""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Iterable

LONGEST = 4000
"""Most characters of a message: values from a damaged file can be of any length."""
NO_THREAD = "can't start new thread"
"""Python's message, in a plain `RuntimeError`."""


class OneLine(Exception):
    """An error whose message is one line, whatever the names in it contain."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class UserError(OneLine, ValueError):
    """The user's input is wrong: one line, exit code 2, no traceback."""


class RunFailed(OneLine, RuntimeError):
    """A run cannot continue (non-finite loss, full disk): one line, exit code 1."""


def one_line(text: str) -> str:
    """The text with newlines and other control characters escaped; file names may contain them."""
    text = text.encode("utf-8", "backslashreplace").decode()
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST // 2]} … {plain[-LONGEST // 2 :]}"


def say(text: str) -> None:
    """Print a line to stderr; the output of a command goes to stdout."""
    with contextlib.suppress(OSError):  # a full disk: there is nobody to tell
        print(one_line(f"nps: {text}"), file=sys.stderr)


def reason(error: BaseException) -> str | None:
    """The cause of a system error (memory, threads, files) in one line; None for other errors."""
    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, RuntimeError) and NO_THREAD in str(error):
        return "the system starts no more threads (see ulimit -u)"
    if isinstance(error, OSError):
        why = error.strerror or str(error)
        return f"{error.filename}: {why}" if error.filename else why
    return None


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
