"""A run is a folder: config.json, metrics.jsonl, checkpoints/, figures/, provenance.json.

It has one writer at a time and one identity for its whole life (`identity.py`): the same command
again resumes, another is refused with the difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from nps import schema
from nps.errors import UserError
from nps.files import os_errors_in_one_line, write_json
from nps.reading import Damaged, Missing, read_json, read_json_lines
from nps.training import checkpoint, clearing, lock, model_folder
from nps.training.checkpoint import Checkpoint
from nps.training.config import SCHEMA, with_new_names
from nps.training.identity import Identity, changes, identity, new_id, require_storable
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
            if seeds := seeds_in(self.folder):
                one = self.folder / f"seed-{seeds.split()[0].rstrip(',')}"
                found = f"holds runs of seeds {seeds}; choose one, such as {one}"
                raise Missing(f"{self.folder}: {found}") from None
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

    def trained_on(self, fingerprint: str | None, unrecorded: str | None = None) -> bool:
        """Whether its last session used data with this fingerprint, as far as is known.

        Args:
            fingerprint: of the data.
            unrecorded: that of a run which recorded none, if it is known.
        """
        recorded = [session["data"] for session in self.provenance() if session.get("data")]
        own = recorded[-1] if recorded else unrecorded
        return own is None or own == fingerprint

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
        with lock.hold(self.folder):
            with os_errors_in_one_line(f"cannot write to {self.folder}"):
                clearing.recover(self.folder, self._id())
            yield

    @contextmanager
    def claimed(self, identity: dict[str, Any], *, fresh: bool = False) -> Iterator[None]:
        """Claim the folder for a training; one that fails before it has begun leaves nothing."""
        new = fresh or not os.path.lexists(self.folder / "config.json")
        self.claim(identity, fresh=fresh)
        try:
            yield
        except BaseException:
            if new and not self._has_begun():
                clearing.discard(self.folder)
            raise

    def claim(self, identity: dict[str, Any], *, fresh: bool = False) -> None:
        """Write config.json, or make sure that the one there is the same."""
        self.require_claimable(identity, fresh=fresh)
        wanted = {"schema": SCHEMA, "id": new_id(), **json.loads(json.dumps(identity))}
        path = self.folder / "config.json"
        if os.path.lexists(path) and not fresh:
            return
        trash = clearing.move_out(self.folder, wanted["id"]) if fresh else None
        try:
            with os_errors_in_one_line(f"cannot write {path}"):
                write_json(path, wanted)
        except BaseException:
            if trash is not None:
                clearing.put_back(trash)
            raise
        if trash is not None:
            clearing.delete(trash)

    def require_claimable(self, identity: dict[str, Any], *, fresh: bool = False) -> None:
        """Refuse a training that this folder is not for, before anything is written."""
        require_storable(identity)
        if fresh:
            self.require_clearable()
            return
        self.require_same(identity)
        if self.identity() is None:
            self._require_free("nps would overwrite them")
        if os.path.islink(self.metrics_path):
            raise UserError(f"{self.metrics_path}: a symbolic link, expected the file itself")
        if os.path.islink(self.checkpoints) and not os.path.isdir(self.checkpoints):
            raise UserError(f"{self.checkpoints}: a symbolic link to a folder that is not there")

    def require_same(self, identity: dict[str, Any]) -> None:
        """Refuse a run with another config, if one is there."""
        found = self.differences(identity)
        if found:
            raise UserError(
                f"{self.folder}: holds a run with another config ({'; '.join(found)}); "
                "choose another --out, or --fresh to start over"
            )

    def require_clearable(self) -> None:
        """Refuse to clear a folder that is not a run, or that cannot be cleared wholly."""
        if not self._is_run():
            self._require_free("--fresh deletes only runs")
        clearing.require_clearable(self.folder)

    def _require_free(self, why: str) -> None:
        """Refuse a folder that is not a run and holds files of a run's names: they are a user's."""
        if names := clearing.in_the_way(self.folder):
            raise UserError(
                f"{self.folder} is not a run of nps, its {', '.join(names)} stay ({why}); "
                "choose another --out, or remove them yourself"
            )

    def _is_run(self) -> bool:
        """Whether config.json is one of ours, of whatever schema."""
        return set(self._raw_config()) >= REQUIRED

    def _id(self) -> str | None:
        return self._raw_config().get("id")

    def _raw_config(self) -> dict[str, Any]:
        """config.json as it is; empty if there is none that can be read."""
        try:
            saved: dict[str, Any] = read_json(
                self.folder / "config.json", dict[str, Any], finite=False
            )
        except UserError:
            return {}
        return saved

    def _has_begun(self) -> bool:
        """Whether a training has left something to keep: a row, a checkpoint, a failed batch."""
        try:
            rows = self.metrics_path.exists() and self.metrics_path.stat().st_size > 0
            steps = checkpoint.steps(self.checkpoints)
        except (OSError, UserError):
            return True
        return rows or bool(steps) or (self.folder / "not-finite.json").exists()

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


def seeds_in(folder: Path) -> str:
    """The seeds of the runs in a folder, in words; empty if there are none."""
    names = [run.parent.name.removeprefix("seed-") for run in folder.glob("seed-*/config.json")]
    seeds = sorted(int(name) for name in names if name.isdecimal())
    if len(seeds) > 3 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def run_at(path: Path | str) -> Run:
    """The run of a run folder, or of one of its checkpoint folders."""
    path = Path(path)
    return Run(path.parent.parent if _is_checkpoint(path) else path)


def find_checkpoint(
    path: Path | str, report: Callable[[str], None] = lambda line: None
) -> tuple[Run, Checkpoint]:
    """From a run folder or one of its checkpoint folders: the run, and a whole checkpoint.

    Args:
        path: of a run, which gives its newest whole checkpoint, of a checkpoint, or of a model.
        report: takes a line that names both if newer ones are damaged.
    """
    path, run = Path(path), run_at(path)
    if _is_checkpoint(path):
        return run, run.load(path)
    if model_folder.is_model_folder(path):
        return run, model_folder.load(path)
    found = checkpoint.find(run.checkpoints, run.read())
    if found.checkpoint is None:
        why = "".join(f" ({problem})" for problem in list(found.damaged.values())[:1])
        raise UserError(f"{path}: no whole checkpoint in it{why}")
    if found.warning:
        report(found.warning)
    return run, found.checkpoint


def _is_checkpoint(path: Path) -> bool:
    return bool(checkpoint.NAME.fullmatch(path.name)) and path.parent.name == "checkpoints"
