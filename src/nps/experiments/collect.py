"""Add runs to the tables of `results/<experiment>/`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nps.errors import UserError
from nps.experiments.results import Result, require_own_model
from nps.experiments.tables import CURVES, RUNS, Key, Kind, Row, key, read_table, write_table
from nps.files import os_errors_in_one_line


@dataclass(frozen=True)
class Added:
    """How many runs were added, how many replaced others, and how many the table has now."""

    new: int
    replaced: int
    total: int


def add(folder: Path, runs: Sequence[Result], *, replace: bool = False) -> Added:
    """Add tested runs to the table in `folder`, which is made if there is none: all, or none.

    Args:
        folder: `results/<experiment>`.
        runs: with the group, variant and published mark that they get in the table.
        replace: whether runs may replace those with the same group, variant and seed. A run that
            replaces a published one is published too.
    """
    experiment = _check(runs)
    with os_errors_in_one_line(f"cannot write to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        rows = _read(folder / RUNS, "runs", experiment)
        curves = _read(folder / CURVES, "curves", experiment)
        old = {run.key: rows[run.key] for run in runs if run.key in rows}
        if old and not replace:
            first = next(run for run in runs if run.key in old)
            raise UserError(
                f"{folder / RUNS}: already has {first.address}; to replace it: --replace"
            )
        for run in runs:
            published = run.published or old.get(run.key, {}).get("published", False)
            rows[run.key] = {**to_row(run), "published": published}
            curves[run.key] = to_curve(run)
        with os_errors_in_one_line(f"cannot write to {folder}"):
            # Curves first: a stop in between leaves one without a run, which nothing reads.
            write_table(folder / CURVES, "curves", experiment, curves.values())
            write_table(folder / RUNS, "runs", experiment, rows.values())
    return Added(len(runs) - len(old), len(old), len(rows))


def to_row(run: Result) -> Row:
    """A run as a line of runs.jsonl.xz: every number as it was measured."""
    return {
        "group": run.group,
        "variant": run.variant,
        "seed": run.seed,
        "preset": run.preset,
        "published": run.published,
        "config": run.config,
        "test": run.test if run.tested else None,
        "provenance": run.provenance,
    }


def to_curve(run: Result) -> Row:
    """A run as a line of curves.jsonl.xz: rounded, with enough digits for a figure."""
    where = {"group": run.group, "variant": run.variant, "seed": run.seed}
    return {**where, "rows": _rounded(run.curve())}


def _rounded(value: Any) -> Any:
    """The same data, floats with 6 significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return value


def _check(runs: Sequence[Result]) -> str:
    """The experiment of the runs, if they can be rows of one table."""
    seen: dict[Key, Path] = {}
    for run in runs:
        if run.experiment != runs[0].experiment:
            first = f"{runs[0].path} is one of {runs[0].experiment}"
            raise UserError(f"{run.path}: a run of {run.experiment}, but {first}")
        if not run.tested:
            raise UserError(f"{run.path}: not tested; first: nps eval {run.path}")
        if run.key in seen:
            raise UserError(f"{run.path}: would be {run.address}, and so would {seen[run.key]}")
        seen[run.key] = run.path
    require_own_model(runs)
    return runs[0].experiment


def _read(path: Path, kind: Kind, experiment: str) -> dict[Key, Row]:
    if not path.exists():
        return {}
    theirs, rows = read_table(path, kind)
    if theirs != experiment:
        raise UserError(f"{path}: a table of {theirs}, got a run of {experiment}")
    return {key(row): row for row in rows}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time: what another adds in between would be lost."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
