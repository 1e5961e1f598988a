"""Files and folders that are whole or absent: temporary name, fsync, rename, fsync the parent."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nps.errors import RunFailed


def sync_folder(folder: Path) -> None:
    """Make renames inside the folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def own_file(path: str, flags: int) -> int:
    """An opener for files that only we write: follows no link and does not block on a pipe."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:  # which the system calls "too many levels of links"
            raise OSError(errno.ELOOP, "a symbolic link, expected the file itself") from None
        raise


def delete_folder(path: Path) -> None:
    """Delete a folder as far as possible. On a pipe of that name `rmtree` would block."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)


def write_bytes(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_all(file: io.FileIO, data: bytes) -> None:
    """Write everything to an unbuffered file, whose `write` may take only a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that readers see the old or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_bytes(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, data: object) -> None:
    replace_file(path, (json.dumps(data, indent=2) + "\n").encode())


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder that gets its name only when everything in it is written."""
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    delete_folder(temporary)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        sync_folder(temporary)
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(path.parent)


@contextmanager
def os_errors_in_one_line(doing: str) -> Iterator[None]:
    """Report a full disk or a read-only folder in one line."""
    try:
        yield
    except OSError as error:
        raise RunFailed(f"{doing}: {error.strerror or error}") from error
