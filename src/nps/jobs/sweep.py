"""A sweep: every point of a grid of configs, trained with several seeds and tested, in one table.

    OUT/sweep.json                   preset, grid, seeds and the config that all points share
    OUT/rules=4,dropout=0.1/seed-0/  one run folder per point and seed
    OUT/table.md  OUT/table.json     one row per point: median and range over seeds

The folders are the state: complete runs are skipped, others resume, and a larger grid or more seeds
extend the sweep. Nothing starts before the config of every point has been validated.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from nps.errors import RunFailed, UserError
from nps.experiments import evaluate
from nps.experiments.experiment import Experiment
from nps.experiments.results import Result, read_run
from nps.files import os_errors_in_one_line, replace_file, write_json
from nps.inspect.report import Table, markdown
from nps.jobs import table as sweep_table
from nps.jobs.cluster import ray_cluster
from nps.jobs.grid import Grid, Point, points
from nps.jobs.processes import Job, Process, default_workers, job_of, train_all
from nps.reading import Missing, read_json
from nps.training import checkpoint
from nps.training.config import (
    SCHEMA,
    TrainConfig,
    differences,
    to_json,
    with_defaults,
    with_new_names,
)
from nps.training.progress import ProgressLine
from nps.training.run import Run, identity
from nps.training.signals import Interrupted, Signals


class Saved(TypedDict):
    """The fields of sweep.json that are read again."""

    preset: str
    config: dict[str, Any]


@dataclass(frozen=True)
class Member:
    """One run of a sweep."""

    point: Point
    seed: int
    run: Run
    identity: dict[str, Any]

    def complete(self) -> bool:
        return self.run.complete(self.identity)

    def tested(self) -> bool:
        """True if its best model was tested after its last checkpoint."""
        result = read_run(self.run.folder)
        if result.test.get("which") != "best" or result.mismatch:
            return False
        last = checkpoint.path_of(self.run.checkpoints, checkpoint.steps(self.run.checkpoints)[-1])
        tested = (self.run.folder / "test.json").stat().st_mtime
        return tested >= (last / "manifest.json").stat().st_mtime


@dataclass(frozen=True)
class Sweep:
    """What to train; `Execution` says how."""

    experiment: Experiment
    preset: str
    config: TrainConfig
    """The config that all points share: the preset with the given flags."""
    grid: Grid
    seeds: int
    out: Path

    def points(self) -> list[Point]:
        preset = to_json(self.experiment.presets[self.preset].config)
        for name, value in to_json(self.config).items():
            if name in self.grid and value != preset[name]:
                raise UserError(f"{name}: got a flag and --grid values, expected one of the two")
        return points(self.config, self.grid, self.preset)

    def members(self) -> list[Member]:
        """All runs, seed by seed, so that every point has its first result early."""
        return [
            Member(
                point,
                seed,
                Run(self.out / point.name / f"seed-{seed}"),
                identity(self.experiment.name, self.preset, seed, point.config),
            )
            for seed, point in itertools.product(range(self.seeds), self.points())
        ]

    def jobs(self, todo: Sequence[Member], device: str) -> list[Job]:
        """One command per run; on a GPU one per point, whose seeds train as a stack."""

        def job(member: Member, folder: Path, *, seed: int = 0, seeds: int = 1) -> Job:
            where: dict[str, Any] = {"device": device, "seed": seed, "seeds": seeds}
            return job_of(self.experiment, self.preset, member.point.config, folder, **where)

        if device == "cpu" or self.seeds == 1:
            return [job(member, member.run.folder, seed=member.seed) for member in todo]
        points = {member.point.name: member for member in todo}
        return [job(one, self.out / name, seeds=self.seeds) for name, one in points.items()]

    def claim(self, members: Sequence[Member]) -> None:
        """Write sweep.json; refuse a folder that holds a sweep or runs with other configs."""
        path = self.out / "sweep.json"
        with contextlib.suppress(Missing):
            saved = read_json(path, Saved, finite=False)
            wanted = {"preset": self.preset, **to_json(self.config)}
            known = {"preset": saved["preset"], **with_defaults(with_new_names(saved["config"]))}
            _refuse(self.out, differences(known, wanted))
        for member in members:
            _refuse(member.run.folder, member.run.differences(member.identity))
        record = {"preset": self.preset, "grid": self.grid, "seeds": self.seeds}
        with os_errors_in_one_line(f"cannot write {path}"):
            write_json(path, {"schema": SCHEMA, **record, "config": to_json(self.config)})


@dataclass(frozen=True)
class Execution:
    """How to run a sweep: nothing here changes a result."""

    on: str = "local"
    """Processes on this machine ("local"), or tasks on a Ray cluster ("ray")."""
    workers: int = 0
    """Runs in parallel; 0 means one per core, or as many as the cluster has room for."""
    retries: int = 2
    """How often a training that dies is restarted."""
    device: str = "cpu"


@dataclass(frozen=True)
class Outcome:
    table: Table
    """Of the main metrics; table.md has all."""
    failed: dict[Path, str]
    """Folder -> why its run failed."""


def run_sweep(sweep: Sweep, execution: Execution, report: Callable[[str], None]) -> Outcome:
    """Train and test what is missing, then write table.md and table.json."""
    members = sweep.members()
    with Run(sweep.out).writing():
        sweep.claim(members)
        todo = [member for member in members if not member.complete()]
        complete = len(members) - len(todo)
        report(f"{len(members)} runs in {sweep.out}: {complete} complete, {len(todo)} to train")
        failures = _train(sweep.jobs(todo, execution.device), execution, report)
        failed = {
            member.run.folder: failures.get(member.run.folder) or failures[member.run.folder.parent]
            for member in todo
            if failures and not member.complete()
        }
        failed |= _test([member for member in members if member.run.folder not in failed])
        results: dict[str, list[Result]] = {point.name: [] for point in sweep.points()}
        for member in members:
            if member.run.folder not in failed:
                results[member.point.name].append(read_run(member.run.folder))
        full_table = sweep_table.table(sweep.points(), results, sweep.seeds)
        record = sweep_table.record(sweep.points(), results)
        with os_errors_in_one_line(f"cannot write {sweep.out / 'table.md'}"):
            replace_file(sweep.out / "table.md", (markdown(full_table) + "\n").encode())
            reasons = {str(path.relative_to(sweep.out)): why for path, why in failed.items()}
            write_json(sweep.out / "table.json", {"points": record, "failed": reasons})
    main = sweep.experiment.main_metrics
    return Outcome(sweep_table.table(sweep.points(), results, sweep.seeds, main), failed)


def _train(
    jobs: Sequence[Job], execution: Execution, report: Callable[[str], None]
) -> dict[Path, str]:
    if not jobs:
        return {}
    retries = execution.retries
    if execution.on == "ray":
        workers = execution.workers or len(jobs)
        with ray_cluster(execution.device) as start:
            failed = train_all(jobs, workers, start, retries, report)
    else:
        workers = execution.workers or default_workers(execution.device)
        failed = train_all(jobs, workers, Process, retries, report)
    return {job.folder: why for job, why in failed.items()}


def _test(members: Sequence[Member]) -> dict[Path, str]:
    """Test the best model of each run; returns why tests failed, for those that did."""
    failed = {}
    with Signals() as signals, ProgressLine("testing", len(members), 0, "runs") as line:
        for number, member in enumerate(members):
            if signals.received is not None:
                raise Interrupted(signals.received, f"with {len(members) - number} runs not tested")
            line.update(number)
            try:
                if not member.tested() and evaluate(member.run.folder)["which"] != "best":
                    failed[member.run.folder] = "no validation gave a finite score"
            except (UserError, RunFailed) as error:
                failed[member.run.folder] = str(error)
    return failed


def _refuse(folder: Path, changes: Sequence[str]) -> None:
    if changes:
        raise UserError(
            f"{folder}: holds another config ({'; '.join(changes)}); choose another --out"
        )
