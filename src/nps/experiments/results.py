"""Results: runs as reports see them, read from run folders or from the tables of `results/`.

Both are addressed alike. A run is `<group>/<variant>/seed-<s>` below a folder, whether that is a
path on disk or a row of the folder's table: `results/atari/study` gives the runs of one group,
`results/blocks/blocks-best` those of one variant. Reports do not know which of the two they read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from nps import schema
from nps.errors import UserError, nearest
from nps.experiments.tables import CURVES, RUNS, Key, Row, key, read_table
from nps.experiments.tested import mismatch
from nps.reading import Missing, exists, read_json
from nps.training.config import with_new_names
from nps.training.run import Run

Curve = list[dict[str, Any]]
"""A metric log: one dictionary per epoch."""


@dataclass(frozen=True)
class Result:
    """One run: its settings, its test metrics and where they come from."""

    experiment: str
    preset: str
    """The preset that it was trained with."""
    variant: str
    """The model's name in tables, from the folder above `seed-<s>`: mostly the preset's."""
    seed: int
    config: dict[str, Any]
    test: dict[str, Any]
    """Test metrics; empty if it was not tested."""
    provenance: list[dict[str, Any]]
    """An entry for each session of training: command, commit, device, wall time."""
    path: Path
    """The run folder, or its address in a table."""
    group: str = ""
    """The folders above the variant, such as a game or `quick`; none for most runs."""
    tested: bool = True
    mismatch: str = ""
    """What is wrong if `test` is about another model than the best of its newest checkpoint."""
    published: bool = False
    """True for runs that the tables of README and docs are made of."""
    read_curve: Callable[[], Curve] = field(default=list, repr=False, compare=False)

    def number(self, metric: str) -> float:
        """A test metric."""
        value: Any = self.test.get(metric)
        if not schema.fits(value, float):
            got = f"{metric} is {schema.shown(value)}, expected a number"
            raise UserError(f"{self.path}: {got}; test it again: nps eval {self.path}")
        return float(value)

    def curve(self) -> Curve:
        """The metric log: losses and validation metrics of each epoch.

        From a table, numbers are rounded to 6 significant digits."""
        return self.read_curve()

    @property
    def key(self) -> Key:
        """What identifies it in a table."""
        return self.group, self.variant, self.seed

    @property
    def address(self) -> str:
        """Its path below the folder of a table."""
        return PurePosixPath(self.group, self.variant, f"seed-{self.seed}").as_posix()

    @property
    def seconds(self) -> float:
        """Wall time of the training, all sessions together."""
        return float(sum(session["wall_seconds"] for session in self.provenance))

    @property
    def all_timed(self) -> bool:
        """False if a session was killed, which leaves no time: the next starts beyond the last."""
        ends = [0, *(session["to_step"] for session in self.provenance)]
        starts = [session["from_step"] for session in self.provenance]
        return all(start <= end for start, end in zip(starts, ends, strict=False))

    @property
    def seeds_in_stack(self) -> int:
        """Number of seeds that were trained together in that time."""
        return max((session.get("seeds_in_stack", 1) for session in self.provenance), default=1)


def read_results(path: Path | str) -> list[Result]:
    """The tested runs at `path`, ordered by group, variant and seed.

    Args:
        path: a folder of run folders (see `run_folders`); a folder with a table, which gives its
            published runs; or an address in a table, which gives all tested runs below it.
    """
    path = Path(path)
    runs = read_runs(path)
    tested = [run for run in runs if run.tested]
    if not tested:
        why = f"; none of its {len(runs)} runs has been tested" if runs else ""
        raise UserError(f"{path}: no tested runs (<preset>/seed-<s>/test.json) in it{why}")
    require_own_model(tested)
    if not exists(path / RUNS):
        return tested
    published = [run for run in tested if run.published]
    if not published:
        raise UserError(
            f"{path / RUNS}: no published runs in it; all runs: nps table {path} --list"
        )
    return published


def require_own_model(runs: Sequence[Result]) -> None:
    """Refuse runs whose test metrics are about another model than the one that tables show."""
    wrong = [run.mismatch for run in runs if run.mismatch]
    if wrong:
        others = f" (and {len(wrong) - 1} more)" if wrong[1:] else ""
        raise UserError(wrong[0] + others)


def read_runs(path: Path | str) -> list[Result]:
    """All runs at `path`, also those that are not tested or not published."""
    path = Path(path)
    if exists(path / RUNS):
        runs = _rows_of(path)
    elif folders := run_folders(path):
        runs = sorted((read_run(folder, path) for folder in folders), key=lambda run: run.key)
    else:
        runs = _below(path)
    for run in runs:
        if run.experiment != runs[0].experiment:
            other = f"{runs[0].path} is one of {runs[0].experiment}"
            raise UserError(f"{run.path}: a run of {run.experiment}, but {other}")
    return runs


def run_folders(path: Path) -> list[Path]:
    """The path itself if it is a run; else the folders `seed-<s>`, `<variant>/seed-<s>` and
    `<group>/<variant>/seed-<s>` in it."""
    if is_run(path):
        return [path]
    found: list[Path] = []
    level = [path] if path.is_dir() else []
    for _ in range(3):
        # Not glob: it skips folders that cannot be listed, and a table would lack their runs.
        level = [child for folder in level for child in sorted(folder.iterdir()) if child.is_dir()]
        found += [each for each in level if each.name.startswith("seed-") and is_run(each)]
        level = [folder for folder in level if folder not in found]
    return found


def is_run(folder: Path) -> bool:
    return exists(folder / "config.json")


def read_run(folder: Path, root: Path | None = None) -> Result:
    """The run in a folder.

    Args:
        folder: with config.json, and mostly metrics.jsonl, provenance.json and test.json.
        root: where its address starts; folders between the two become its group.
    """
    run = Run(folder)
    saved = run.read()
    test = _test_of(folder)
    whole = folder.absolute()
    in_seed_folder = whole.name.startswith("seed-")
    above = folder.relative_to(root).parts[:-2] if root else ()
    return Result(
        experiment=saved["experiment"],
        preset=str(saved["preset"]),
        variant=whole.parent.name if in_seed_folder else str(saved["preset"]),
        seed=saved["seed"],
        config=saved["config"],
        test=test or {},
        provenance=run.provenance(),
        path=folder,
        group="/".join(above),
        tested=test is not None,
        mismatch=mismatch(run, test or {}),
        read_curve=run.metrics,
    )


def _test_of(folder: Path) -> dict[str, Any] | None:
    """The test metrics of a run, if it was tested. They may be NaN."""
    try:
        test: dict[str, Any] = read_json(folder / "test.json", dict[str, Any], finite=False)
    except Missing:
        return None
    return test


def _rows_of(folder: Path) -> list[Result]:
    """All runs of the table in `folder`."""
    experiment, rows = read_table(folder / RUNS, "runs")

    @cache
    def curves() -> dict[Key, Curve]:
        path = folder / CURVES
        logs = read_table(path, "curves")[1] if exists(path) else []
        return {key(log): log["rows"] for log in logs}

    def result(row: Row) -> Result:
        return Result(
            experiment=experiment,
            preset=row["preset"],
            variant=row["variant"],
            seed=row["seed"],
            config=with_new_names(row["config"]),
            test=row["test"] or {},
            provenance=row["provenance"],
            path=folder / row["group"] / row["variant"] / f"seed-{row['seed']}",
            group=row["group"],
            tested=row["test"] is not None,
            published=row["published"],
            read_curve=lambda: curves().get(key(row), []),
        )

    return [result(row) for row in rows]


def _below(path: Path) -> list[Result]:
    """The runs whose address in the table of a parent folder is `path` or below it."""
    folder = next((above for above in path.parents if exists(above / RUNS)), None)
    if folder is None:
        return []
    runs = _rows_of(folder)
    found = [run for run in runs if run.path == path or path in run.path.parents]
    if not found:
        names = {run.path.relative_to(folder).parts[0] for run in runs}
        wanted = path.relative_to(folder).as_posix()
        raise UserError(f"{folder / RUNS}: no runs in {wanted!r}{nearest(wanted, names)}")
    return found


def by_variant(results: Sequence[Result], first: Iterable[str] = ()) -> dict[str, list[Result]]:
    """variant -> its runs, one per seed. Runs in groups are left out if there are runs outside.

    Args:
        results: the runs.
        first: variants that come first, in this order, if they have runs.
    """
    variants: dict[str, dict[int, Result]] = {}
    outside = [run for run in results if not run.group]
    for run in outside or results:
        seeds = variants.setdefault(run.variant, {})
        if run.seed in seeds:
            both = f"{seeds[run.seed].path} and {run.path}"
            raise UserError(f"{both}: expected one run of {run.variant} with seed {run.seed}")
        seeds[run.seed] = run
    order = dict.fromkeys([*(name for name in first if name in variants), *variants])
    return {name: [variants[name][seed] for seed in sorted(variants[name])] for name in order}


def require_whole(results: Sequence[Result], tested: Any, fields: Iterable[str]) -> None:
    """Refuse runs whose config.json or test.json is not what a report needs.

    Args:
        results: the runs of one experiment.
        tested: the type of its test metrics, see `nps.schema`.
        fields: names in the config.
    """
    for run in results:
        if (what := schema.problem(run.test, tested)) is not None:
            again = f"test it again: nps eval {run.path}"
            raise UserError(f"{run.path / 'test.json'}: damaged, {what}; {again}")
        missing = [name for name in fields if name not in run.config]
        if missing:
            raise UserError(f"{run.path / 'config.json'}: damaged, {missing[0]} is missing")
