"""One writer per run folder: a lock that is held while a training runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from nps.errors import UserError
from nps.files import os_errors_in_one_line, own_file


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which holds our process id; a second writer is refused.

    After an error, a folder or lock that was made here is removed if nothing else was written.
    """
    path = folder / ".lock"
    new = not os.path.lexists(path)
    with os_errors_in_one_line(f"cannot write to {folder}"):
        made = _missing(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lock: IO[str] = open(path, "a+", errors="replace", opener=own_file)  # noqa: SIM115
    with lock:
        _take(lock, path)
        try:
            yield
        except BaseException:
            if new and os.listdir(folder) == [".lock"]:
                _remove(path, made)
            raise
        finally:  # not by closing alone: a process that was forked meanwhile has the file, too
            fcntl.flock(lock, fcntl.LOCK_UN)


def _take(lock: IO[str], path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Not one that another process has removed since, together with its folder.
        alone = os.path.samestat(path.stat(), os.fstat(lock.fileno()))
    except OSError:
        alone = False
    lock.seek(0)
    owner = lock.read(20).strip()
    if not alone:
        raise UserError(f"{path.parent}: in use by another process (pid {owner or 'unknown'})")
    if owner and not owner.isdecimal():
        raise UserError(f"{path}: not a lock of nps; remove it, or choose another --out")
    with os_errors_in_one_line(f"cannot write to {path.parent}"):
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()


def _missing(folder: Path) -> list[Path]:
    """The folder and its parents, as far as they do not exist, innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _remove(lock: Path, made: list[Path]) -> None:
    """Remove a lock and the folders that were made for it."""
    with contextlib.suppress(OSError):
        lock.unlink()
        for folder in made:
            folder.rmdir()
