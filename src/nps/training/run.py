"""A run is a folder: config.json, metrics.jsonl, checkpoints/, figures/, provenance.json.

One writer at a time, one config for its whole life: the same command again resumes, another config
is refused with the difference.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from nps.errors import UserError
from nps.files import read_json, told_in_one_line, write_json
from nps.training import checkpoint
from nps.training.config import SCHEMA, TrainConfig, differences, to_json


class Run:
    """The folder of one training run."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.checkpoints = self.folder / "checkpoints"
        self.figures = self.folder / "figures"
        self.metrics_path = self.folder / "metrics.jsonl"

    # -- reading ------------------------------------------------------------------------------

    def read(self) -> dict[str, Any]:
        """config.json: experiment, preset, seed and the config's fields, checked for schema."""
        if not self.folder.is_dir():
            raise UserError(f"{self.folder}: no such run folder")
        path = self.folder / "config.json"
        if not path.exists():
            raise UserError(f"{self.folder}: not a run folder, it has no config.json")
        saved = read_json(path)
        missing = {"schema", "experiment", "preset", "seed", "config"} - set(saved)
        if missing:
            raise UserError(f"{path}: damaged, {', '.join(sorted(missing))} is missing")
        if saved["schema"] > SCHEMA:
            raise UserError(
                f"{path}: schema {saved['schema']}, this nps reads up to {SCHEMA}: update nps"
            )
        return dict(saved)

    def metrics(self) -> list[dict[str, Any]]:
        """The metric log, a dictionary a line. A torn last line is left out."""
        if not self.metrics_path.exists():
            return []
        lines = self.metrics_path.read_text().splitlines()
        rows = []
        for number, line in enumerate(lines):
            try:
                rows.append(json.loads(line))
            except ValueError:
                if number < len(lines) - 1:
                    place = f"{self.metrics_path}:{number + 1}"
                    raise UserError(f"{place}: damaged, not JSON") from None
        return rows

    def provenance(self) -> list[dict[str, Any]]:
        """Where each sitting of the run came from."""
        path = self.folder / "provenance.json"
        return list(read_json(path)) if path.exists() else []

    def saw(self, fingerprint: str | None) -> bool:
        """Were these the data of its last sitting, as far as is known?"""
        known = [sitting["data"] for sitting in self.provenance() if sitting.get("data")]
        return not known or known[-1] == fingerprint

    def differences(self, identity: dict[str, Any]) -> list[str]:
        """What sets the run in the folder apart from the one wanted; nothing if there is none."""
        if not (self.folder / "config.json").exists():
            return []
        return differences(_flat(self.read()), _flat(json.loads(json.dumps(identity))))

    def complete(self, identity: dict[str, Any]) -> bool:
        """Is this very run trained to its end? Told from its files, without building its model."""
        if not (self.folder / "config.json").exists() or self.differences(identity):
            return False
        rows = self.metrics()
        if not rows or rows[-1]["epoch"] != identity["config"]["epochs"]:
            return False
        if checkpoint.steps(self.checkpoints)[-1:] != [rows[-1]["step"]]:
            return False  # the log may be ahead of the last checkpoint
        try:
            checkpoint.load(checkpoint.path_of(self.checkpoints, rows[-1]["step"]))
        except UserError:
            return False
        return True

    # -- writing ------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the folder's lock; a second writer is refused."""
        with told_in_one_line(f"cannot write to {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock: IO[str] = (self.folder / ".lock").open("a+")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                owner = lock.read().strip() or "unknown"
                raise UserError(f"{self.folder}: in use by another process (pid {owner})") from None
            with told_in_one_line(f"cannot write to {self.folder}"):
                lock.truncate(0)
                lock.write(str(os.getpid()))
                lock.flush()
            yield

    def claim(self, identity: dict[str, Any], *, fresh: bool = False) -> None:
        """Write config.json, or make sure that the one there is the same."""
        if fresh:
            self._clear()
        wanted = {"schema": SCHEMA, **json.loads(json.dumps(identity))}
        path = self.folder / "config.json"
        if not path.exists():
            with told_in_one_line(f"cannot write {path}"):
                write_json(path, wanted)
            return
        self.require_same(identity)

    def require_same(self, identity: dict[str, Any]) -> None:
        """Refuse a run with another config, if one is there."""
        changes = self.differences(identity)
        if changes:
            raise UserError(
                f"{self.folder}: holds a run with another config ({'; '.join(changes)}); "
                "choose another --out, or --fresh to start over"
            )

    def _clear(self) -> None:
        """Remove what a run writes, and nothing else."""
        for folder in (self.checkpoints, self.figures, self.folder / "tensorboard"):
            shutil.rmtree(folder, ignore_errors=True)
        for name in ("config.json", "metrics.jsonl", "provenance.json", "test.json"):
            (self.folder / name).unlink(missing_ok=True)

    def add_provenance(self, sitting: dict[str, Any]) -> None:
        path = self.folder / "provenance.json"
        with told_in_one_line(f"cannot write {path}"):
            write_json(path, [*self.provenance(), sitting])


def identity(experiment: str, preset: str, seed: int, config: TrainConfig) -> dict[str, Any]:
    """What makes a run the run it is: the content of its config.json."""
    return {
        "experiment": experiment,
        "preset": preset,
        "seed": seed,
        "config": to_json(config),
    }


def find_checkpoint(path: Path | str) -> tuple[Run, checkpoint.Checkpoint]:
    """From a run folder or one of its checkpoint folders: the run, and a whole checkpoint."""
    path = Path(path)
    if checkpoint.NAME.fullmatch(path.name) and path.parent.name == "checkpoints":
        return Run(path.parent.parent), checkpoint.load(path)
    run = Run(path)
    run.read()
    problems: list[str] = []
    found = checkpoint.newest(run.checkpoints, problems.append)
    if found is None:
        why = f" ({problems[0]})" if problems else ""
        raise UserError(f"{path}: no whole checkpoint in it{why}")
    return run, found


def _flat(saved: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in saved.items() if key not in ("config", "schema", "preset")}
    return {**rest, **saved["config"]}
