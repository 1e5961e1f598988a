"""A run is a folder: config.json, metrics.jsonl, checkpoints/, figures/, provenance.json.

It has one writer at a time and one identity for its whole life (`identity.py`): the same command
again resumes, another is refused with the difference.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NotRequired, TypedDict

from nps import schema
from nps.errors import UserError, say
from nps.files import os_errors_in_one_line, own_file, write_json
from nps.reading import Damaged, Missing, read_json, read_json_lines
from nps.training import checkpoint
from nps.training.checkpoint import Checkpoint
from nps.training.config import SCHEMA, with_new_names
from nps.training.identity import Identity, changes, identity, new_id
from nps.training.precision import Precision

__all__ = ["Run", "find_checkpoint", "identity", "run_at"]

REQUIRED = {"schema", "experiment", "preset", "seed", "config"}
"""Keys of every config.json."""


class Saved(TypedDict):
    """config.json"""

    schema: int
    experiment: str
    preset: str
    seed: int
    id: NotRequired[str]
    precision: NotRequired[Precision]
    config: dict[str, Any]


class Session(TypedDict):
    """The fields of an entry of provenance.json that are read again."""

    from_step: int
    to_step: int
    wall_seconds: float
    device: str
    torch: str
    commit: str | None
    precision: NotRequired[str]
    seeds_in_stack: NotRequired[int]
    data: NotRequired[str]


class Validation(TypedDict):
    score: NotRequired[float]


class Row(TypedDict):
    """A line of metrics.jsonl."""

    epoch: int
    step: NotRequired[int]
    validation: NotRequired[Validation]


WRITTEN = (
    *("checkpoints", "figures", "tensorboard"),
    *("config.json", "metrics.jsonl", "provenance.json", "test.json", "test-*.json"),
    *("not-finite.json", "report.html"),
)
"""What a run writes into its folder, and --fresh deletes."""


class Run:
    """The folder of one training run."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.checkpoints = self.folder / "checkpoints"
        self.figures = self.folder / "figures"
        self.metrics_path = self.folder / "metrics.jsonl"

    # -- reading ------------------------------------------------------------------------------

    def read(self) -> dict[str, Any]:
        """config.json, checked: experiment, preset, seed, precision, fields of the config."""
        path = self.folder / "config.json"
        try:
            saved = read_json(path, dict[str, Any], finite=False)
        except Missing:
            if not self.folder.is_dir():
                raise Missing(f"{self.folder}: no such run folder") from None
            raise Missing(f"{self.folder}: not a run folder, it has no config.json") from None
        version = saved.get("schema")
        if isinstance(version, int) and version > SCHEMA:
            raise UserError(f"{path}: schema {version}, this nps reads up to {SCHEMA}: update nps")
        if (what := schema.problem(saved, Saved)) is not None:
            raise Damaged(f"{path}: damaged, {what}")
        config = with_new_names(saved["config"])
        return {"precision": self._first_precision(), **saved, "config": config}

    def _first_precision(self) -> str:
        """The precision of a run whose config.json is older than this field."""
        recorded = (session.get("precision") for session in self.provenance())
        return next((precision for precision in recorded if precision), "float32")

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of the metric log. A torn last line is left out."""
        try:
            return list(read_json_lines(self.metrics_path, Row))
        except Missing:
            return []

    def provenance(self) -> list[dict[str, Any]]:
        """Versions, device, command and time of every session that trained the run."""
        try:
            return list(read_json(self.folder / "provenance.json", list[Session]))
        except Missing:
            return []

    def require_log(self, length: int, report: Callable[[str], None]) -> None:
        """Refuse a metric log that has lost any of the `length` bytes that a checkpoint counts."""
        try:
            for _ in read_json_lines(self.metrics_path, Row, length) if length else ():
                pass
        except Missing:
            report(f"{self.metrics_path}: it is gone; the log goes on without the rows it had")
        except Damaged as error:
            way_out = "move it away to go on without its rows, or --fresh starts over"
            raise Damaged(f"{error}; {way_out}") from None

    def trained_on(self, fingerprint: str | None) -> bool:
        """Whether its last session used data with this fingerprint, as far as is recorded."""
        recorded = [session["data"] for session in self.provenance() if session.get("data")]
        return not recorded or recorded[-1] == fingerprint

    def identity(self) -> Identity | None:
        """The identity of the run in the folder, if there is one."""
        try:
            return self.read()
        except Missing:
            return None

    def differences(self, wanted: Identity) -> list[str]:
        """How the run in the folder differs from another identity; empty if the folder has none."""
        own = self.identity()
        return [] if own is None else changes(own, wanted)

    def complete(self, identity: dict[str, Any]) -> bool:
        """Whether the run with this identity is trained to its end, judging by its files."""
        try:
            if changes(self.read(), identity):
                return False
            rows = self.metrics()
        except Damaged:
            return False
        if not rows or rows[-1]["epoch"] != identity["config"]["epochs"]:
            return False
        if checkpoint.steps(self.checkpoints)[-1:] != [rows[-1].get("step")]:
            return False  # the log may be ahead of the last checkpoint
        try:
            self.load(checkpoint.path_of(self.checkpoints, rows[-1]["step"]))
        except UserError:
            return False
        return True

    def load(self, path: Path) -> Checkpoint:
        """One of the run's checkpoints; refuses another run's."""
        return checkpoint.load(path, self.identity())

    # -- writing ------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the folder's lock; a second writer is refused."""
        with os_errors_in_one_line(f"cannot write to {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock: IO[str] = open(self.folder / ".lock", "a+", opener=own_file)  # noqa: SIM115
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                owner = lock.read(20).strip() or "unknown"
                raise UserError(f"{self.folder}: in use by another process (pid {owner})") from None
            with os_errors_in_one_line(f"cannot write to {self.folder}"):
                lock.truncate(0)
                lock.write(str(os.getpid()))
                lock.flush()
            try:
                yield
            finally:  # not by closing alone: a process that was forked meanwhile has the file, too
                fcntl.flock(lock, fcntl.LOCK_UN)

    def claim(self, identity: dict[str, Any], *, fresh: bool = False) -> None:
        """Write config.json, or make sure that the one there is the same."""
        if fresh:
            self.clear()
        wanted = {"schema": SCHEMA, "id": new_id(), **json.loads(json.dumps(identity))}
        path = self.folder / "config.json"
        if not os.path.lexists(path):
            with os_errors_in_one_line(f"cannot write {path}"):
                write_json(path, wanted)
            return
        self.require_same(identity)

    def require_same(self, identity: dict[str, Any]) -> None:
        """Refuse a run with another config, if one is there."""
        found = self.differences(identity)
        if found:
            raise UserError(
                f"{self.folder}: holds a run with another config ({'; '.join(found)}); "
                "choose another --out, or --fresh to start over"
            )

    def clear(self) -> None:
        """Delete what a run writes and nothing else; all of it, or nothing."""
        self.require_clearable()
        trash = self.folder / f".cleared-{os.getpid()}"
        moved: list[Path] = []
        try:
            trash.mkdir()
            for path in self._written():
                os.rename(path, trash / path.name)
                moved.append(path)
        except OSError as error:
            for path in moved:
                os.rename(trash / path.name, path)
            shutil.rmtree(trash, ignore_errors=True)
            raise UserError(f"--fresh: cannot clear {self.folder}: {error.strerror}") from None
        shutil.rmtree(trash, ignore_errors=True)
        if trash.exists():
            say(f"{trash}: could not be deleted; nothing uses it")

    def require_clearable(self) -> None:
        """Refuse to clear a folder that is not a run, or that cannot be cleared wholly."""
        existing = self._written()
        if existing and not self._is_run():
            names = ", ".join(path.name for path in existing)
            raise UserError(
                f"--fresh: {self.folder} is not a run of nps, its {names} stay; "
                "choose another --out, or remove them yourself"
            )
        for path in existing:
            if path.is_symlink():
                raise UserError(f"--fresh: {path} is a symbolic link; remove it yourself")
            for folder in [path, *path.rglob("*")] if path.is_dir() else []:
                if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
                    raise UserError(f"--fresh: no permission to delete {folder}")

    def _written(self) -> list[Path]:
        """The files and folders of a run that exist."""
        found = [path for pattern in WRITTEN for path in sorted(self.folder.glob(pattern))]
        links = [self.folder / name for name in WRITTEN if (self.folder / name).is_symlink()]
        return list(dict.fromkeys([*found, *links]))

    def _is_run(self) -> bool:
        """Whether config.json is one of ours, of whatever schema."""
        try:
            saved = read_json(self.folder / "config.json", dict[str, Any], finite=False)
        except UserError:
            return False
        return set(saved) >= REQUIRED

    def begin_session(self, session: dict[str, Any]) -> None:
        """Record where a session of training comes from, before its first step."""
        self._write_provenance([*self.provenance(), session])

    def end_session(self, session: dict[str, Any]) -> None:
        """Record how the newest session ended."""
        self._write_provenance([*self.provenance()[:-1], session])

    def _write_provenance(self, sessions: list[dict[str, Any]]) -> None:
        path = self.folder / "provenance.json"
        with os_errors_in_one_line(f"cannot write {path}"):
            write_json(path, sessions)


def run_at(path: Path | str) -> Run:
    """The run of a run folder, or of one of its checkpoint folders."""
    path = Path(path)
    return Run(path.parent.parent if _is_checkpoint(path) else path)


def find_checkpoint(
    path: Path | str, report: Callable[[str], None] = lambda line: None
) -> tuple[Run, Checkpoint]:
    """From a run folder or one of its checkpoint folders: the run, and a whole checkpoint.

    Args:
        path: of a run, which gives its newest whole checkpoint, or of a checkpoint.
        report: takes a line that names both if newer ones are damaged.
    """
    path, run = Path(path), run_at(path)
    if _is_checkpoint(path):
        return run, run.load(path)
    found = checkpoint.find(run.checkpoints, run.read())
    if found.checkpoint is None:
        why = "".join(f" ({problem})" for problem in list(found.damaged.values())[:1])
        raise UserError(f"{path}: no whole checkpoint in it{why}")
    if found.warning:
        report(found.warning)
    return run, found.checkpoint


def _is_checkpoint(path: Path) -> bool:
    return bool(checkpoint.NAME.fullmatch(path.name)) and path.parent.name == "checkpoints"
