"""`nps run EXPERIMENT`: train and test every model of an experiment, and write one report."""

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
from nps.errors import UserError, nearest, one_line, say
from nps.flag_help import flags_of
from nps.flags import parse

MORE = "`nps run EXPERIMENT --help` also shows the flags that only one experiment has."


@dataclass(frozen=True)
class RunArgs:
    out: Path | None = None
    """Folder for runs and report (default: runs/EXPERIMENT or runs/EXPERIMENT-quick; below it the
    values of the experiment's own flags)."""
    seeds: int = 1
    """Models per preset, with seeds 0, 1, …; at once where they can be stacked, otherwise one after
    the other."""
    workers: int = 0
    """Presets to train in parallel (default: one per core, or per GPU)."""
    quick: bool = False
    """Fewer presets, some with fewer epochs: a few minutes on two cores. The default on a CPU for
    experiments that would take an hour or more."""
    full: bool = False
    """The full schedule, also on a CPU."""
    presets: tuple[str, ...] = ()
    """Only these presets (default: all of the experiment)."""
    device: Device = "cpu"
    """Where to train: cpu or cuda."""
    precision: Precision = "float32"
    """float32 is exact; tf32 and bf16 are faster."""
    data: DataFolder = None


def run(args: Sequence[str]) -> None:
    """Train every model of an experiment, test each, and write report.html.

    The same command again resumes where it stopped and skips what is done.

    Examples:
      nps run arithmetic --quick
      nps run arithmetic --seeds 10 --out runs/arithmetic
      nps run mnist --seeds 10 --device cuda --precision bf16
      nps run atari --game pong --seeds 20 --device cuda
      nps run world-model --data my.h5 --epochs 30
    """
    from nps.experiments import evaluate, find_experiment
    from nps.experiments.options import require_seeds
    from nps.inspect.report import Figure
    from nps.jobs.processes import default_workers, run_jobs

    name, rest = positional(run, "EXPERIMENT", args, lambda: flags_of(RunArgs), note=MORE)
    experiment = find_experiment(name)
    cls = _run_args(experiment)
    options = parse(cls, rest, prog=f"nps run {name}", about=about(run, experiment.about))
    require_seeds(options.seeds)
    require(options.workers >= 0, f"--workers: got {options.workers}, expected at least 1")
    require(not (options.quick and options.full), "--quick, --full: expected one of the two")
    have_quick = set(options.presets) <= set(experiment.quick)
    undecided = options.device == "cpu" and not (options.quick or options.full)
    long_on_cpu = experiment.slow_on_cpu and undecided and not have_quick
    if experiment.slow_on_cpu and undecided and have_quick:
        say("on a CPU this is the quick version; for the full schedule: --device cuda, or --full")
        options = dataclasses.replace(options, quick=True)
    chosen = options.presets or tuple(experiment.quick if options.quick else experiment.presets)
    for preset in chosen:
        if preset not in experiment.presets:
            raise UserError(f"unknown preset {preset!r}{nearest(preset, experiment.presets)}")
    given = {flag: getattr(options, flag) for flag in experiment.flags}
    folder = Path("runs", f"{name}-quick" if options.quick else name, *map(str, given.values()))
    out = options.out or folder
    given |= own_data(experiment, options.data)
    given |= _adjusted(experiment, options)
    find_device(options.device)
    waves, folders = _plan(experiment, chosen, options, out, given)
    if long_on_cpu:
        missing = ", ".join(preset for preset in chosen if preset not in experiment.quick)
        say(f"{missing}: has no quick version, so this is the full schedule; faster: --device cuda")
        for preset in chosen:
            say(f"{preset}: {_steps(experiment, preset, given):,} steps")
    workers = options.workers or default_workers(options.device)
    for jobs in filter(None, waves):
        count = f"{_count(len(jobs), 'preset')}, {_count(options.seeds, 'seed')} each"
        say(f"training {count}, {min(workers, len(jobs))} at a time, into {out}")
        run_jobs(jobs, workers)
    for folder in folders:
        evaluate(folder, options.device)
    report = experiment.report(out)
    report.show(Console())
    if experiment.inspect_in_report:
        for preset in chosen:
            report.add(*_inspected(experiment, preset, out / preset / "seed-0", options.device))
    page = report.write(out)
    drawn = any(isinstance(part, Figure) for part in report.parts)
    print(f"\nReport{' with figures' if drawn else ''}: {one_line(str(page))}")
    if options.quick:
        full = _full_command(experiment, options)
        print(f"This was the quick version. All presets, ten seeds: {full}")


def _inspected(experiment: Any, preset: str, folder: Path, device: str) -> list[Any]:
    """What `nps inspect` shows of a run, as a section of the report."""
    from nps.experiments import load_task
    from nps.inspect.report import Figure, Heading

    parts: list[Any] = [Heading(f"{preset}, seed 0")]
    for part in experiment.inspect(*load_task(folder, device), experiment.inspect_options()):
        figure = isinstance(part, Figure)
        parts.append(dataclasses.replace(part, name=f"{preset}-{part.name}") if figure else part)
    return parts


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _steps(experiment: Any, preset: str, given: Mapping[str, Any]) -> int:
    """Training steps of a preset."""
    import torch

    from nps.training.loop import steps_per_epoch

    config = dataclasses.replace(experiment.presets[preset].config, **given)
    task = experiment.make_task(config, torch.device("cpu"))
    return int(config.epochs * steps_per_epoch(task, config))


def _full_command(experiment: Any, options: Any) -> str:
    """The command for the full version."""
    words = ["nps", "run", experiment.name]
    for flag in experiment.flags:
        words += [f"--{flag}", str(getattr(options, flag))]
    if options.data is not None:
        words += ["--data", str(options.data)]
    for name, value in _adjusted(experiment, options).items():
        words += [f"--{name}", str(value)]
    words += ["--seeds", "10", *(["--device", "cuda"] if experiment.slow_on_cpu else [])]
    return shlex.join(words)


def _run_args(experiment: Any) -> type[Any]:
    """The flags of the command and those of the experiment."""
    hints = typing.get_type_hints(experiment.config)
    defaults = {each.name: each.default for each in dataclasses.fields(experiment.config)}
    fields: list[Any] = [
        (name, hints[name], field(says, defaults[name])) for name, says in experiment.flags.items()
    ]
    fields += [
        (name, hints[name] | None, field(says, None))
        for name, says in experiment.adjustable.items()
    ]
    return dataclasses.make_dataclass("Args", fields, bases=(RunArgs,), frozen=True)


def _adjusted(experiment: Any, options: Any) -> dict[str, Any]:
    """The fields for all presets that were given as flags."""
    values = {name: getattr(options, name) for name in experiment.adjustable}
    return {name: value for name, value in values.items() if value is not None}


def _plan(
    experiment: Any, chosen: Sequence[str], options: Any, out: Path, given: Mapping[str, Any]
) -> tuple[tuple[list[Any], list[Any]], list[Path]]:
    """Jobs for what is still to be trained, in two waves, and the folders of all runs.

    The second wave has the presets that start from the models of another.
    """
    from nps.jobs.processes import job_of
    from nps.training.run import Run, identity

    waves: tuple[list[Any], list[Any]] = ([], [])
    folders: list[Path] = []
    for name in chosen:
        preset = experiment.presets[name]
        changes = {**(experiment.shorten(name, given) if options.quick else {}), **given}
        if preset.starts_from is not None:
            changes["start_from"] = str(out / preset.starts_from)
        config = dataclasses.replace(preset.config, **changes)
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
        wave = waves[0 if preset.starts_from is None else 1]
        wave.append(job_of(experiment, name, config, folder, **how))
    return waves, folders
