"""`nps run EXPERIMENT`: every model of an experiment, tested, in one report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from nps.commands.shared import (
    DataFolder,
    Device,
    about,
    find_device,
    positional,
    require,
    use_data,
)
from nps.errors import UserError, nearest, say
from nps.flags import parse


@dataclass(frozen=True)
class RunArgs:
    out: Path | None = None
    """Folder for runs and report (default: runs/EXPERIMENT, runs/EXPERIMENT-quick)."""
    seeds: int = 1
    """Models of each preset, with seeds 0, 1, …; they are trained as one stack."""
    workers: int = 0
    """Presets at the same time (default: one a core, or a GPU)."""
    quick: bool = False
    """The short version: fewer presets, some with fewer epochs, a few minutes on two cores."""
    presets: tuple[str, ...] = ()
    """Only these presets (default: all of the experiment)."""
    device: Device = "cpu"
    """Where to train: cpu or cuda."""
    data: DataFolder = None


def run(args: Sequence[str]) -> None:
    """Train every model of an experiment, test each, and write report.html.

    The same command again goes on where it stopped and skips what is done.

    Examples:
      nps run arithmetic --quick
      nps run arithmetic --seeds 10 --out runs/arithmetic
    """
    from nps.experiments import evaluate, find_experiment
    from nps.jobs.processes import Job, default_workers, job_of, run_jobs
    from nps.training.run import Run, identity

    name, rest = positional(run, "EXPERIMENT", args)
    experiment = find_experiment(name)
    options = parse(RunArgs, rest, prog=f"nps run {name}", about=about(run, experiment.about))
    use_data(options.data)
    require(options.seeds >= 1, f"--seeds: got {options.seeds}, expected at least 1")
    require(options.workers >= 0, f"--workers: got {options.workers}, expected at least 1")
    chosen = options.presets or tuple(experiment.quick if options.quick else experiment.presets)
    for preset in chosen:
        if preset not in experiment.presets:
            raise UserError(f"unknown preset {preset!r}{nearest(preset, experiment.presets)}")
    out = options.out or Path("runs") / (f"{name}-quick" if options.quick else name)
    runs: list[Run] = []
    jobs: list[Job] = []
    for preset in chosen:
        changes = experiment.quick.get(preset, {}) if options.quick else {}
        config = dataclasses.replace(experiment.presets[preset].config, **changes)
        seeds = {s: Run(out / preset / f"seed-{s}") for s in range(options.seeds)}
        runs += seeds.values()
        if not all(r.complete(identity(name, preset, s, config)) for s, r in seeds.items()):
            folder = out / preset if options.seeds > 1 else seeds[0].folder
            jobs.append(
                job_of(
                    experiment,
                    preset,
                    config,
                    folder,
                    seeds=options.seeds,
                    device=options.device,
                )
            )
    find_device(options.device)
    workers = options.workers or default_workers(options.device)
    if jobs:
        count = f"{len(jobs)} presets, {options.seeds} seeds each"
        say(f"training {count}, {min(workers, len(jobs))} at a time, into {out}")
        run_jobs(jobs, workers)
    for trained in runs:
        evaluate(trained.folder)
    report = experiment.write_report(out)
    page = report.write(out)
    report.show(Console())
    print(f"\nReport with figures: {page}")
    if options.quick:
        print(f"This was the short version. All presets, ten seeds: nps run {name} --seeds 10")
