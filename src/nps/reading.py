"""Read files that may be damaged or hostile: checked content, or a one-line error.

A run folder may come from anywhere, and disks fail. So only regular files are opened (a pipe would
block, a device never end), the size is checked before memory is allocated, and the content is
checked against the type that its owner declares (`nps.schema`).
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from nps import schema
from nps.errors import UserError

MAX_BYTES = 16 * 2**20
"""Largest JSON document, or line of a log. Ours have kilobytes; parsing takes up to 30 times as
much memory."""
MAX_LOG_BYTES = 2**30
LARGEST = 2**63 - 1
"""Largest integer, that of int64."""


class Damaged(UserError):
    """A file that is not what nps writes there."""


class Missing(Damaged):
    """A file that does not exist."""


class Unreadable(UserError):
    """A file that may be whole, but cannot be read here: permissions, links, a newer schema."""


def open_regular(path: Path, most: int, *, links: bool = True) -> BinaryIO:
    """Open a regular file of at most `most` bytes, for reading.

    Args:
        path: the file.
        most: its largest size.
        links: whether symbolic links are allowed.
    """
    try:
        _require_regular(path, path.stat() if links else path.lstat(), most)
        # It may have been replaced since: a pipe must not block.
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    except UserError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise Missing(f"{path}: no such file") from None
    except OSError as error:
        kind = Damaged if error.errno == errno.ELOOP else Unreadable
        raise kind(f"{path}: cannot read it: {error.strerror}") from None
    except ValueError:
        raise Damaged(f"{str(path)!r}: not the name of a file") from None
    try:
        _require_regular(path, os.fstat(file.fileno()), most)
    except UserError:
        file.close()
        raise
    return file


def _without_waiting(path: str, flags: int) -> int:
    """An opener that does not block on a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _require_regular(path: Path, info: os.stat_result, most: int) -> None:
    if stat.S_ISLNK(info.st_mode):
        raise Unreadable(f"{path}: a symbolic link, expected the file itself")
    if not stat.S_ISREG(info.st_mode):
        raise Damaged(f"{path}: damaged, not a regular file")
    if info.st_size > most:
        raise Damaged(f"{path}: damaged, {info.st_size} bytes, expected at most {most}")


def exists(path: Path) -> bool:
    """Whether there is a file or folder; an error if that cannot be determined."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise Unreadable(f"{path}: cannot read it: {error.strerror}") from None
    return True


def read_bytes(path: Path, most: int = MAX_BYTES, *, links: bool = True) -> bytes:
    """The content of a regular file of at most `most` bytes."""
    with open_regular(path, most, links=links) as file:
        try:
            return file.read(os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise Unreadable(f"{path}: cannot read it: {error.strerror}") from None


def read_json(path: Path, kind: Any, *, finite: bool = True) -> Any:
    """A JSON document, checked.

    Args:
        path: the file.
        kind: the type of its content, see `nps.schema`.
        finite: refuse NaN and infinities.
    """
    return parse_json(read_bytes(path), str(path), kind, finite=finite)


def read_json_lines(path: Path, kind: Any, length: int | None = None) -> Iterator[Any]:
    """The rows of a log, one after the other, checked.

    Args:
        path: the file.
        kind: the type of a row. Its numbers need not be finite: metrics may be NaN.
        length: bytes to read, all of which must be there and whole; by default the file is read to
            its end, and a torn last line is left out.
    """
    with open_regular(path, MAX_LOG_BYTES) as file:
        size = os.fstat(file.fileno()).st_size
        if length is not None and size < length:
            raise Damaged(f"{path}: damaged, {size} bytes, but {length} were written")
        left, number = size if length is None else length, 0
        while left and (line := file.readline(min(left, MAX_BYTES))):
            left, number = left - len(line), number + 1
            try:
                row = parse_json(line, f"{path}:{number}", kind, finite=False)
            except Damaged:
                if length is None and not left and not line.endswith(b"\n"):
                    return
                raise
            yield row


def parse_json(data: bytes, where: str, kind: Any, *, finite: bool = True) -> Any:
    """JSON from bytes, checked; `where` names them in errors."""
    numbers: dict[str, Any] = {"parse_float": _finite, "parse_constant": _finite} if finite else {}
    try:
        document = json.loads(
            data.decode(), object_pairs_hook=_without_repeats, parse_int=_integer, **numbers
        )
        if b"\\u" in data:  # half a surrogate pair cannot be printed or written
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise Damaged(f"{where}: damaged, nested too deeply") from None
    except ValueError as error:
        raise Damaged(f"{where}: damaged, not JSON ({error})") from None
    if (what := schema.problem(document, kind)) is not None:
        raise Damaged(f"{where}: damaged, {what}")
    return document


def _integer(text: str) -> int:
    number = int(text)
    if abs(number) > LARGEST:
        raise ValueError(f"the number {schema.shown(number)} is too large")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text} is not finite")
    return number


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found
