"""Code that a user names as `module:name`: find it, and say in one line where it fails."""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from nps.errors import UserError, nearest


@contextmanager
def modules_here() -> Iterator[None]:
    """Import from the current folder too, which the `nps` command does not do by itself."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def find(flag: str, name: str) -> Any:
    """The function or class `name` of `module`, given as `module:name`."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise UserError(f"{flag}: got {name!r}, expected module:name, e.g. my_file:my_function")
    with errors_in_one_line(f"{flag} {name}"):
        module = import_module(module_name)
    if not hasattr(module, attribute):
        known = [each for each in vars(module) if not each.startswith("_")]
        raise UserError(f"{flag} {name}: no {attribute} in it{nearest(attribute, known)}")
    found = getattr(module, attribute)
    if not callable(found):
        raise UserError(f"{flag} {name}: got {type(found).__name__}, expected something to call")
    return found


@contextmanager
def errors_in_one_line(what: str, own: object = None) -> Iterator[None]:
    """Report an exception in the user's code in one line, with the line of code that raised it.

    Args:
        what: names the code in the message.
        own: the user's function: the last line in its file is shown, not one in a library.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{what}: {_spelled(error, own)}") from None


def _spelled(error: Exception, own: object) -> str:
    message = " ".join(str(error).split())
    said = f"{type(error).__name__}: {message}" if message else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{said} in {error.filename}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith("<")
    ]
    file = getattr(getattr(own, "__code__", None), "co_filename", None)
    frames = [frame for frame in frames if frame.filename == file] or frames
    if not frames:
        return said
    last = frames[-1]
    code = linecache.getline(last.filename, last.lineno or 0).strip()
    return f"{said}, raised in {last.filename}, line {last.lineno}: {code}"
