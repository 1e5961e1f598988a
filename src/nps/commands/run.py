"""`nps run EXPERIMENT`: every model of an experiment, tested, in one report."""

from __future__ import annotations

import dataclasses
import shlex
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from nps.commands.shared import (
    DataFolder,
    Device,
    Precision,
    about,
    field,
    find_device,
    own_data,
    positional,
    require,
)
from nps.errors import UserError, nearest, say
from nps.flags import parse


@dataclass(frozen=True)
class RunArgs:
    out: Path | None = None
    """Folder for runs and report (default: runs/EXPERIMENT, runs/EXPERIMENT-quick, and below it the
    values of the experiment's own flags)."""
    seeds: int = 1
    """Models of each preset, with seeds 0, 1, …; they are trained as one stack."""
    workers: int = 0
    """Presets at the same time (default: one a core, or a GPU)."""
    quick: bool = False
    """The short version: fewer presets, some with fewer epochs, a few minutes on two cores. On a
    CPU, experiments that would take hours do this by themselves."""
    full: bool = False
    """The whole schedule, on a CPU too."""
    presets: tuple[str, ...] = ()
    """Only these presets (default: all of the experiment)."""
    device: Device = "cpu"
    """Where to train: cpu or cuda."""
    precision: Precision = "float32"
    """float32 is exact; tf32 and bf16 are faster."""
    data: DataFolder = None


def run(args: Sequence[str]) -> None:
    """Train every model of an experiment, test each, and write report.html.

    The same command again goes on where it stopped and skips what is done.

    Examples:
      nps run arithmetic --quick
      nps run arithmetic --seeds 10 --out runs/arithmetic
      nps run mnist --seeds 10 --device cuda --precision bf16
      nps run atari --game pong --seeds 20 --device cuda
    """
    from nps.experiments import evaluate, find_experiment
    from nps.inspect.report import Figure
    from nps.jobs.processes import default_workers, run_jobs

    name, rest = positional(run, "EXPERIMENT", args)
    experiment = find_experiment(name)
    cls = _run_args(experiment)
    options = parse(cls, rest, prog=f"nps run {name}", about=about(run, experiment.about))
    require(options.seeds >= 1, f"--seeds: got {options.seeds}, expected at least 1")
    require(options.workers >= 0, f"--workers: got {options.workers}, expected at least 1")
    require(not (options.quick and options.full), "--quick, --full: expected one of the two")
    chosen_have_one = set(options.presets) <= set(experiment.quick)
    unsaid = options.device == "cpu" and not (options.quick or options.full)
    whole = experiment.heavy and unsaid and not chosen_have_one
    if experiment.heavy and unsaid and chosen_have_one:
        say("on a CPU this is the short version; the whole schedule: --device cuda, or --full")
        options = dataclasses.replace(options, quick=True)
    chosen = options.presets or tuple(experiment.quick if options.quick else experiment.presets)
    for preset in chosen:
        if preset not in experiment.presets:
            raise UserError(f"unknown preset {preset!r}{nearest(preset, experiment.presets)}")
    given = {flag: getattr(options, flag) for flag in experiment.flags}
    folder = Path("runs", f"{name}-quick" if options.quick else name, *map(str, given.values()))
    out = options.out or folder
    given |= own_data(experiment, options.data)
    find_device(options.device)
    waves, folders = _plan(experiment, chosen, options, out, given)
    if whole:
        missing = ", ".join(preset for preset in chosen if preset not in experiment.quick)
        say(f"no short version of {missing}: this is the whole schedule; on a GPU: --device cuda")
        for preset in chosen:
            say(f"{preset}: {_steps(experiment, preset, given):,} steps")
    workers = options.workers or default_workers(options.device)
    for jobs in filter(None, waves):
        count = f"{_count(len(jobs), 'preset')}, {_count(options.seeds, 'seed')} each"
        say(f"training {count}, {min(workers, len(jobs))} at a time, into {out}")
        run_jobs(jobs, workers)
    for folder in folders:
        evaluate(folder, options.device)
    report = experiment.write_report(out, experiment)
    page = report.write(out)
    report.show(Console())
    drawn = any(isinstance(block, Figure) for block in report.blocks)
    print(f"\nReport{' with figures' if drawn else ''}: {page}")
    if options.quick:
        print(f"This was the short version. All presets, ten seeds: {_whole(experiment, options)}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _steps(experiment: Any, preset: str, given: Mapping[str, Any]) -> int:
    """Of the whole training of a preset."""
    import torch

    from nps.training.loop import steps_per_epoch

    config = dataclasses.replace(experiment.presets[preset].config, **given)
    task = experiment.make_task(config, torch.device("cpu"))
    return int(config.epochs * steps_per_epoch(task, config))


def _whole(experiment: Any, options: Any) -> str:
    """The command for the whole of what the short version showed."""
    words = ["nps", "run", experiment.name]
    for flag in experiment.flags:
        words += [f"--{flag}", str(getattr(options, flag))]
    if options.data is not None:
        words += ["--data", str(options.data)]
    words += ["--seeds", "10", *(["--device", "cuda"] if experiment.heavy else [])]
    return shlex.join(words)


def _run_args(experiment: Any) -> type[Any]:
    """The command's own flags and those of the experiment."""
    hints = typing.get_type_hints(experiment.config)
    usual = {each.name: each.default for each in dataclasses.fields(experiment.config)}
    fields = [
        (name, hints[name], field(says, usual[name])) for name, says in experiment.flags.items()
    ]
    return dataclasses.make_dataclass("Args", fields, bases=(RunArgs,), frozen=True)


def _plan(
    experiment: Any, chosen: Sequence[str], options: Any, out: Path, given: Mapping[str, Any]
) -> tuple[tuple[list[Any], list[Any]], list[Path]]:
    """What is still to be trained, with what was given for all, and the folders of all runs.

    In the second wave are presets that begin with the models of another.
    """
    from nps.jobs.processes import job_of
    from nps.training.run import Run, identity

    waves: tuple[list[Any], list[Any]] = ([], [])
    folders: list[Path] = []
    for name in chosen:
        preset = experiment.presets[name]
        changes = {**(experiment.quick.get(name, {}) if options.quick else {}), **given}
        if preset.after is not None:
            changes["start_from"] = str(out / preset.after)
        config = dataclasses.replace(preset.config, **changes)
        if experiment.prepare is not None:
            experiment.prepare(config)
        seeds = {s: Run(out / name / f"seed-{s}") for s in range(options.seeds)}
        folders += [run.folder for run in seeds.values()]
        what, precision = (experiment.name, name), options.precision
        if all(r.complete(identity(*what, s, config, precision)) for s, r in seeds.items()):
            continue
        folder = out / name if options.seeds > 1 else seeds[0].folder
        how: dict[str, Any] = {
            "seeds": options.seeds,
            "device": options.device,
            "precision": options.precision,
        }
        waves[preset.after is not None].append(job_of(experiment, name, config, folder, **how))
    return waves, folders
