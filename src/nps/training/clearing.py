"""What a run writes into its folder, and how `--fresh` deletes that and nothing else.

Users keep files of their own beside a run's, also in checkpoints/ and figures/. So a file is the
run's only if it has a name that nps gives. `--fresh` first moves all of these into one folder,
named after the id of the run that replaces the old one. The change is made when config.json gets
that id: a process that is killed before has changed nothing, as the next one puts the files back.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from nps.errors import UserError, say
from nps.files import delete_folder

CONFIG = "config.json"
FILES = re.compile(
    r"(metrics\.jsonl|(provenance|not-finite|rule-names)\.json|report\.html"
    r"|test(-step-\d{8,})?(-last)?(-on-.+)?\.json)"
)
"""Files of a run besides config.json."""
INSPECTED = (
    *("compose", "curves", "fall-", "firing-", "pushes", "rollout-", "rollouts", "slots"),
    *("tracking", "ways-"),
)
"""Figures of `nps inspect`. After a dash comes the name of a test set."""
_FIGURE = "|".join(rf"{name}\w+" if name.endswith("-") else name for name in INSPECTED)
FOLDERS = {
    "checkpoints": re.compile(
        r"step-\d{8,}|damaged-step-\d{8,}(-\d+)?|\.tmp-step-\d{8,}-\d+",
    ),
    "figures": re.compile(rf".+-epoch-\d{{4,}}\.png|({_FIGURE})\.(png|gif)"),
    "tensorboard": re.compile(r"events\.out\.tfevents\..+"),
}
"""Folders of a run, and the names of what it writes into them."""
MOVED = re.compile(r"\.cleared-([0-9a-f]+)")
UNFINISHED = re.compile(r"\.(config|provenance|rule-names)\.json\.\d+\.tmp")
"""What `files.replace_file` leaves if its process is killed."""


def owned(folder: Path) -> list[Path]:
    """What a run has written into its folder, without config.json."""
    found = [path for path in _entries(folder) if FILES.fullmatch(path.name)]
    for name, pattern in FOLDERS.items():
        found += [path for path in _entries(folder / name) if pattern.fullmatch(path.name)]
    return found


def in_the_way(folder: Path) -> list[str]:
    """Names in a folder that a run would write to: files, links and folders that are not empty."""
    names = [path.name for path in _entries(folder) if FILES.fullmatch(path.name)]
    if os.path.lexists(folder / CONFIG):
        names.append(CONFIG)
    for name in FOLDERS:
        path = folder / name
        if os.path.lexists(path) and (not os.path.isdir(path) or _entries(path)):
            names.append(name)
    return names


def require_clearable(folder: Path) -> None:
    """Refuse links in the place of what a run writes, and what there is no permission to delete."""
    paths = owned(folder)
    for path in [folder / CONFIG, *(folder / name for name in FOLDERS), *paths]:
        if os.path.islink(path) and path.parent != folder / "checkpoints":
            raise UserError(f"--fresh: {path} is a symbolic link; remove it yourself")
    folders = [path.parent for path in paths] + [path for path in paths if path.is_dir()]
    for path in dict.fromkeys(folders):
        inside = path.rglob("*") if path in paths and not path.is_symlink() else ()
        for each in [path, *inside]:
            if each.is_dir() and not os.access(each, os.W_OK | os.X_OK):
                raise UserError(f"--fresh: no permission to delete {each}")


def move_out(folder: Path, new_id: str) -> Path:
    """Move what a run has written, all or nothing, into a folder that `delete` deletes."""
    trash = folder / f".cleared-{new_id}"
    try:
        trash.mkdir()
        _move(folder, trash)
    except OSError as error:
        put_back(trash)
        raise UserError(f"--fresh: cannot clear {folder}: {error.strerror}") from None
    return trash


def put_back(trash: Path) -> None:
    """Undo `move_out`."""
    if trash.is_dir():
        _move(trash, trash.parent)
        _remove_empty(trash)


def delete(trash: Path) -> None:
    """Delete what `move_out` has moved."""
    _delete(owned(trash))
    _remove_empty(trash)
    if trash.exists():
        say(f"{trash}: could not be deleted; nothing uses it")


def recover(folder: Path, run_id: str | None) -> None:
    """Finish or undo what a process that was killed while it wrote or cleared has left.

    Args:
        folder: of the run.
        run_id: the id in its config.json.
    """
    for path in _entries(folder):
        if (match := MOVED.fullmatch(path.name)) and path.is_dir() and not path.is_symlink():
            delete(path) if match[1] == run_id else put_back(path)
        elif UNFINISHED.fullmatch(path.name):
            _delete([path])


def discard(folder: Path) -> None:
    """Delete a run that has not begun, with its config.json."""
    _delete([*owned(folder), folder / CONFIG])
    for name in FOLDERS:
        with contextlib.suppress(OSError):
            (folder / name).rmdir()


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        delete_folder(path)
        with contextlib.suppress(OSError):
            path.unlink()


def _move(source: Path, target: Path) -> None:
    for path in owned(source):
        to = target / path.relative_to(source)
        if not os.path.lexists(to):  # written since: `rename` would overwrite it
            to.parent.mkdir(exist_ok=True)
            os.rename(path, to)


def _remove_empty(trash: Path) -> None:
    """Remove the folders that `move_out` has made or emptied, unless they hold something else."""
    inside = [at / name for at in (trash, trash.parent) for name in FOLDERS]
    for path in [*inside, trash]:
        if not path.is_symlink():
            with contextlib.suppress(OSError):
                path.rmdir()


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"{folder}: cannot read it: {error.strerror}") from None
