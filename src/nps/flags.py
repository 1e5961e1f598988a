"""Parse flags into dataclasses with tyro, and report mistakes in one line.

tyro draws its errors as coloured boxes as wide as the terminal, so its text is not used: if it
refuses the arguments, `_mistake` finds the reason from the dataclass, and `nps.flag_help` writes
the help.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import sys
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import tyro

from nps.errors import UserError
from nps.flag_help import Flag, flags_of, help_text

T = TypeVar("T")

LONGEST = 60
"""Most characters of a value in an error."""
LONGEST_NAME = 255
"""Most bytes of a file's name."""
OTHER_NAMES = {"--gpu": "--device cuda", "--cuda": "--device cuda"}
KINDS = {int: "an integer", float: "a number", type(None): "None", str: "a value", Path: "a path"}


def parse(cls: type[T], args: Sequence[str], *, prog: str, about: str) -> T:
    """Parse `args` into `cls`; `--help` prints and exits 0, mistakes are a one-line `UserError`."""
    if "-h" in args or "--help" in args:
        print(help_text(prog, about, list(flags_of(cls))))
        sys.exit(0)
    _refuse_empty_paths(prog, flag_names(cls), args)
    args = _capital_none(flag_names(cls), args)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parsed: T = tyro.cli(cls, args=list(args), prog=prog, console_outputs=False)
    except SystemExit as stop:
        known = flag_names(cls)
        why = _mistake(known, args) or _invalid_value(stop)
        raise UserError(f"{prog}: {why or 'cannot read these flags'}") from None
    except ValueError as error:  # it parses, but its values are invalid
        raise UserError(f"{prog}: {error}") from None
    for flag in flags_of(cls, parsed):
        for value in flag.default if flag.takes_many else [flag.default]:
            if isinstance(value, (str, Path)):
                require_short_names(f"{prog}: {flag.name}", value)
    return parsed


def _capital_none(known: dict[str, Flag], args: Sequence[str]) -> list[str]:
    """`--clip-norm none`, as the help says it, for tyro's None; not where "none" is itself a value,
    as in --interaction none."""
    read, flag = list[str](), None
    for word in args:
        name, equals, value = word.partition("=") if _is_flag(word) else ("", "", word)
        if name:
            flag = known.get(name[:2] + name[2:].replace("_", "-"))
        if value == "none" and flag is not None:
            none, capital = (_reads(text, flag.hint) for text in ("none", "None"))
            word = f"{name}{equals}None" if capital and not none else word
        read.append(word)
    return read


def _refuse_empty_paths(prog: str, known: dict[str, Flag], args: Sequence[str]) -> None:
    """Before they are parsed: Path("") is the current folder."""
    flag: Flag | None = None
    for word in args:
        name, equals, value = word.partition("=") if _is_flag(word) else ("", "=", word)
        if name:
            flag = known.get(name[:2] + name[2:].replace("_", "-"))
        if equals and not value.strip() and flag is not None and flag.is_path:
            raise UserError(f"{prog}: {flag.name}: got an empty path, expected a folder or file")


def require_short_names(what: str, path: str | Path) -> None:
    """Refuse a path with a name that is too long for any file system."""
    longest = max(len(os.fsencode(name)) for name in str(path).split("/"))
    if longest > LONGEST_NAME:
        raise UserError(f"{what}: got a name of {longest} bytes, expected at most {LONGEST_NAME}")


def flag_names(cls: type) -> dict[str, Flag]:
    """Flags by every name that can be typed: --rules, --fresh, --no-fresh."""
    flags = {flag.name: flag for flag in flags_of(cls)}
    switches = {f"--no-{name[2:]}": flag for name, flag in flags.items() if flag.is_switch}
    return flags | switches


def nearest_flag(name: str, names: Sequence[str]) -> str:
    """The hint "; did you mean --rules?" for a mistyped flag, or where they are listed."""
    bare = {flag.removeprefix("--"): flag for flag in names}
    close = difflib.get_close_matches(name.removeprefix("--"), bare, n=1, cutoff=0.6)
    initials = {"--" + "".join(word[0] for word in flag.split("-")): flag for flag in bare}
    found: str | None
    if close:
        found = bare[close[0]]
    elif name in initials:  # --lr, --bs
        found = f"--{initials[name]}"
    else:
        found = OTHER_NAMES.get(name)
    return f"; did you mean {found}?" if found else "; --help lists the flags"


def _mistake(known: dict[str, Flag], args: Sequence[str]) -> str | None:
    """The first mistake in the flags themselves, or None."""
    waiting, given = list(args), set[str]()
    while waiting:
        word = waiting.pop(0)
        if not _is_flag(word):
            hint = f"; did you mean --{word}?" if f"--{word}" in known else ""
            return f"unexpected argument {shown(word)}{hint}"
        name, equals, value = word.partition("=")
        name = name[:2] + name[2:].replace("_", "-")
        if name not in known:
            return f"unknown flag {shorten(name)}{nearest_flag(name, list(known))}"
        flag = known[name]
        given.add(name)
        values = [value] if equals else []
        while not equals and waiting and not _is_flag(waiting[0]) and not flag.is_switch:
            values.append(waiting.pop(0))
            if not flag.takes_many:
                break
        if flag.is_switch and (equals or (waiting and not _is_flag(waiting[0]))):
            return f"{name}: got {shown(value or waiting[0])}, expected no value"
        if not values and not flag.is_switch and not flag.takes_many:
            return f"{name}: got no value, expected {_spell(flag.hint)}"
        for each in values:
            if not _reads(each, flag.hint):
                return f"{name}: got {shown(each)}, expected {_spell(flag.hint)}"
    missing = [flag.name for flag in known.values() if flag.required and flag.name not in given]
    return f"{missing[0]} is required" if missing else None


def _invalid_value(stop: BaseException) -> str | None:
    """The message of a config's own check that made tyro exit."""
    cause = stop.__context__
    while cause is not None:
        if isinstance(cause, ValueError):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    return None


def _is_flag(word: str) -> bool:
    """True for --rules and -x, False for values, also for -1 and a dash alone."""
    return word.startswith("-") and word != "-" and not _reads(word, float)


def _reads(text: str, hint: Any) -> bool:
    """Whether a value of this type can be written like this."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return text in map(str, options)
    if origin in (typing.Union, types.UnionType):
        return any(_reads(text, option) for option in options)
    if origin is tuple:
        return _reads(text, options[0])
    if hint is type(None):
        return text == "None"
    try:
        hint(text)
    except ValueError:
        return False
    return True


def _spell(hint: Any) -> str:
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(str, options))}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_spell, options))
    return _spell(options[0]) if origin is tuple else KINDS.get(hint, "a value")


def shown(text: str) -> str:
    return repr(shorten(text))


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
