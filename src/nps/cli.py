"""The command line: `nps run | train | eval | sweep | bench | table | presets`.

Mistakes are one line and exit code 2; a run that cannot go on is one line and exit code 1; a run
that was asked to stop has saved and exits 143 (SIGTERM) or 130 (Ctrl-C).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from nps.errors import RunFailed, UserError, nearest
from nps.flags import parse
from nps.training.signals import Interrupted
from nps.version import __version__

USAGE = """\
nps: Neural Production Systems, the paper's experiments and your own

  nps run EXPERIMENT       train the models of an experiment, test them, write report.html
  nps train PRESET         train one model into a run folder; the same command again resumes
  nps eval RUN             test a trained model
  nps sweep PRESET         train a grid of configs with several seeds each, into one table
  nps table RESULTS        the results table of a folder of runs
  nps presets              the presets there are
  nps bench                time the layers against GNN and attention, and against the machine

  nps COMMAND --help       flags and examples

Examples:
  nps run arithmetic --quick
  nps train arithmetic-sharp --out runs/sharp --seed 3
  nps eval runs/sharp
"""

Device = Literal["cpu", "cuda"]


def say(text: str) -> None:
    print(f"nps: {text}", file=sys.stderr)


# -- nps run ---------------------------------------------------------------------------------------


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


def run(args: Sequence[str]) -> None:
    """Train every model of an experiment, test each, and write report.html.

    The same command again goes on where it stopped and skips what is done.

    Examples:
      nps run arithmetic --quick
      nps run arithmetic --seeds 10 --out runs/arithmetic
    """
    from nps.experiments import find_experiment
    from nps.jobs import default_workers, job_of, run_jobs
    from nps.training.run import Run, identity

    name, rest = _positional("run", "EXPERIMENT", args)
    experiment = find_experiment(name)
    options = parse(RunArgs, rest, prog=f"nps run {name}", about=_about(run, experiment.about))
    _require(options.seeds >= 1, f"--seeds: got {options.seeds}, expected at least 1")
    _require(options.workers >= 0, f"--workers: got {options.workers}, expected at least 1")
    chosen = options.presets or tuple(experiment.quick if options.quick else experiment.presets)
    for preset in chosen:
        if preset not in experiment.presets:
            raise UserError(f"unknown preset {preset!r}{nearest(preset, experiment.presets)}")
    out = options.out or Path("runs") / (f"{name}-quick" if options.quick else name)
    runs, jobs = [], []
    for preset in chosen:
        changes = experiment.quick.get(preset, {}) if options.quick else {}
        config = dataclasses.replace(experiment.presets[preset].config, **changes)
        seeds = {s: Run(out / preset / f"seed-{s}") for s in range(options.seeds)}
        runs += seeds.values()
        if not all(r.complete(identity(name, preset, s, config)) for s, r in seeds.items()):
            folder = out / preset if options.seeds > 1 else seeds[0].folder
            how = {"seeds": options.seeds, "device": options.device}
            jobs.append(job_of(experiment, preset, config, folder, **how))
    _device(options.device)
    workers = options.workers or default_workers(options.device)
    if jobs:
        count = f"{len(jobs)} presets, {options.seeds} seeds each"
        say(f"training {count}, {min(workers, len(jobs))} at a time, into {out}")
        run_jobs(jobs, workers)
    for trained in runs:
        _test(trained.folder, "cpu", "best")
    report = experiment.write_report(out)
    page = report.write(out)
    report.show(Console())
    print(f"\nReport with figures: {page}")
    if options.quick:
        print(f"This was the short version. All presets, ten seeds: nps run {name} --seeds 10")


# -- nps train -------------------------------------------------------------------------------------


def train(args: Sequence[str]) -> None:
    """Train one model into a run folder. The same command again resumes, bit for bit.

    With --seeds N, N models are trained at once, each into OUT/seed-<s>. Under torchrun, several
    processes train one model together.

    Examples:
      nps train arithmetic --out runs/a
      nps train arithmetic --out runs/six --rules 6 --seed 1
      nps train arithmetic-sharp --out runs/sharp --seeds 50 --device cuda
      torchrun --nproc-per-node 2 -m nps train arithmetic --out runs/a
    """
    import torch

    from nps.experiments import find_preset
    from nps.training import distributed

    name, rest = _positional("train", "PRESET", args)
    experiment, preset = find_preset(name)
    options = parse(
        _train_args(experiment.config, preset.config),
        rest,
        prog=f"nps train {name}",
        about=_about(train, preset.about),
    )
    _require(options.seeds >= 1, f"--seeds: got {options.seeds}, expected at least 1")
    at_once = options.at_once
    _require(at_once is None or at_once >= 1, f"--at-once: got {at_once}, expected at least 1")
    if experiment.threads is not None:
        torch.set_num_threads(experiment.threads)
    with distributed.processes(_device(options.device)) as device:
        _train(experiment, name, options, device)


def _train_args(kind: type[Any], preset: Any) -> type[Any]:
    """The flags of `nps train`: how to run, and every field of the config."""
    from nps.training.precision import Precision

    fields: list[Any] = [
        ("out", Path, _field("Run folder; with --seeds the folder of the runs.")),
        (
            "seed",
            int,
            _field("Seed of initialisation, order and noise; with --seeds the first.", 0),
        ),
        ("seeds", int, _field("Train so many seeds at once, each as its own run.", 1)),
        ("at_once", int | None, _field("Most seeds in one stack (default: what fits).", None)),
        ("device", Device, _field("cpu or cuda.", "cpu")),
        ("capture", bool, _field("On cuda, replay the step as a CUDA graph.", True)),
        ("precision", Precision, _field("float32 is exact; tf32 and bf16 are faster.", "float32")),
        ("fresh", bool, _field("Throw away the run in --out and start over.", False)),
        ("tensorboard", bool, _field("Also write TensorBoard logs.", False)),
        (
            "config",
            Annotated[kind, tyro.conf.arg(name="")],
            dataclasses.field(default=preset),
        ),
    ]
    return dataclasses.make_dataclass("TrainArgs", fields, frozen=True, kw_only=True)


def _train(experiment: Any, preset: str, options: Any, device: Any) -> None:
    from nps.training import distributed
    from nps.training.loop import Settings
    from nps.training.loop import train as train_loop
    from nps.training.run import Run, identity

    first, count, out = options.seed, options.seeds, options.out
    if count > 1 and distributed.active():
        raise UserError("--seeds: several processes train one seed together; nps sweep runs many")
    distributed.require_even_shares(options.config.batch_size)
    folders = [out] if count == 1 else [out / f"seed-{first + i}" for i in range(count)]
    runs = {first + i: Run(folder) for i, folder in enumerate(folders)}
    settings = Settings(
        tensorboard=options.tensorboard,
        capture=options.capture,
        precision=options.precision,
        seeds_at_once=options.at_once,
    )
    with contextlib.ExitStack() as held:
        if distributed.is_first():
            for seed, run in runs.items():
                held.enter_context(run.writing())
                run.claim(
                    identity(experiment.name, preset, seed, options.config), fresh=options.fresh
                )
        distributed.wait_for_all()
        task = experiment.make_task(options.config, device)
        report = say if distributed.is_first() else _quiet
        train_loop(task, options.config, runs, device, settings, report)
    if not distributed.is_first():
        return
    for run in runs.values():
        rows = [row for row in run.metrics() if "validation" in row]
        score = min(row["validation"]["score"] for row in rows)
        print(f"{run.folder}: trained, best validation score {score:.6g}")
    print(f"Test {'it' if count == 1 else 'one'}: nps eval {folders[0]}")


def _quiet(text: str) -> None:
    pass


# -- nps eval --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvalArgs:
    device: Device = "cpu"
    """cpu or cuda."""
    which: Literal["best", "last"] = "best"
    """The model with the best validation score, or the last one."""


def evaluate(args: Sequence[str]) -> None:
    """Test a trained model. Everything about the model is read from its run folder.

    Examples:
      nps eval runs/sharp
      nps eval runs/sharp/checkpoints/step-00046800 --which last
    """
    name, rest = _positional("eval", "RUN", args)
    options = parse(EvalArgs, rest, prog="nps eval RUN", about=_about(evaluate))
    metrics = _test(Path(name), options.device, options.which)
    for key, value in metrics.items():
        if isinstance(value, float):
            print(f"{key:18} {value:.6g}")
    for rule in metrics.get("rules", []):
        fit = f"   (R² {rule['r2']:.3f})" if rule["r2"] is not None else ""
        print(f"rule {rule['rule']}: {rule['says']}{fit}")


def _test(path: Path, device: str, which: str) -> dict[str, Any]:
    """Test metrics, also written to the run's test.json."""
    from nps import experiments

    _device(device)
    return experiments.evaluate(path, device, which)


# -- nps sweep -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SweepArgs:
    grid: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]],
        tyro.conf.arg(metavar="NAME=VALUE,VALUE,… …"),
    ] = ()
    """Fields of the config and their values; every combination is a point of the grid."""
    seeds: int = 1
    """Runs of each point, with seeds 0, 1, …"""
    out: Path | None = None
    """Folder for runs and table (default: runs/sweep-PRESET); with ray, one that all nodes see."""
    workers: int = 0
    """Runs at the same time (default: one a core; with ray, all that the cluster has room for)."""
    retries: int = 2
    """How often a training that dies is begun again from its checkpoint."""
    on: Literal["local", "ray"] = "local"
    """Processes here, or tasks on Ray: RAY_ADDRESS, else a running cluster, else one of its own."""
    device: Device = "cpu"
    """Where to train: cpu or cuda."""


def sweep(args: Sequence[str]) -> None:
    """Train a grid of configs with several seeds each, test them, and end in one table.

    The same command again goes on and skips what is complete; more values or seeds extend it. A
    training that dies goes on from its checkpoint. The config's own flags hold for all points.

    Examples:
      nps sweep arithmetic --grid rules=1,2,4,6 --seeds 5
      nps sweep arithmetic --grid rules=4,6 dropout=0,0.35 --epochs 50 --workers 8
      nps sweep arithmetic-sharp --grid balance=0,0.1,0.3 --seeds 10 --on ray
    """
    from nps.experiments import find_preset
    from nps.grid import parse_grid
    from nps.inspect.report import Report
    from nps.sweep import How, Sweep, run_sweep

    name, rest = _positional("sweep", "PRESET", args)
    experiment, preset = find_preset(name)
    config = Annotated[experiment.config, tyro.conf.arg(name="")]
    fields = [("config", config, dataclasses.field(default=preset.config))]
    cls = dataclasses.make_dataclass("Args", fields, bases=(SweepArgs,), frozen=True, kw_only=True)
    options: Any = parse(cls, rest, prog=f"nps sweep {name}", about=_about(sweep, preset.about))
    for flag, least in (("seeds", 1), ("workers", 0), ("retries", 0)):
        value = getattr(options, flag)
        _require(value >= least, f"--{flag}: got {value}, expected at least {least}")
    if options.on == "local":
        _device(options.device)
    grid = parse_grid(experiment.config, [text for given in options.grid for text in given])
    out = options.out or Path("runs") / f"sweep-{name}"
    plan = Sweep(experiment, name, options.config, grid, options.seeds, out)
    how = How(options.on, options.workers, options.retries, options.device)
    outcome = run_sweep(plan, how, say)
    Report(f"{name}: {out}", [outcome.table]).show(Console())
    print(f"\nAlso as Markdown and JSON: {out / 'table.md'}, {out / 'table.json'}")
    for folder, why in outcome.failed.items():
        say(f"{folder} failed: {why}")
    if outcome.failed:
        runs = f"{len(outcome.failed)} of {len(plan.members())} runs"
        raise RunFailed(f"{runs} failed; the same command tries them again")


# -- nps table, nps presets ------------------------------------------------------------------------


@dataclass(frozen=True)
class TableArgs:
    into: tuple[Path, ...] = ()
    """Markdown files whose `<!-- table: NAME -->` … `<!-- end -->` is replaced by the table."""
    report: bool = False
    """Also write report.html and its figures into the folder."""


def table(args: Sequence[str]) -> None:
    """Print the results table of a folder of runs as Markdown, or put it into documents.

    Examples:
      nps table results/arithmetic
      nps table results/arithmetic --report --into README.md docs/arithmetic.md
    """
    from nps.experiments import find_experiment
    from nps.experiments.results import read_results
    from nps.inspect.report import Table, markdown, put_into

    name, rest = _positional("table", "RESULTS", args)
    options = parse(TableArgs, rest, prog="nps table RESULTS", about=_about(table))
    folder = Path(name)
    first = next(iter(read_results(folder).values()))[0].run.read()
    experiment = find_experiment(first["experiment"])
    report = experiment.write_report(folder)
    summary = next(block for block in report.blocks if isinstance(block, Table))
    if not options.into and not options.report:
        print(markdown(summary))
    if options.report:
        print(f"{report.write(folder)} written")
    for path in options.into:
        put_into(path, experiment.name, markdown(summary))
        print(f"{path}: table {experiment.name} updated")


def presets(args: Sequence[str]) -> None:
    """List the presets."""
    from nps.experiments import EXPERIMENTS

    if args and args[0] in ("-h", "--help"):
        print("nps presets: list the presets of every experiment")
        return
    _require(not args, f"nps presets: got {' '.join(args)!r}, expected no arguments")
    for experiment in EXPERIMENTS.values():
        print(f"{experiment.name}: {experiment.about}")
        for name, preset in experiment.presets.items():
            print(f"  {name:28} {preset.about}")


# -- nps bench -------------------------------------------------------------------------------------


def bench(args: Sequence[str]) -> None:
    """Time NPS, GNN and attention side by side, and count what each of them takes.

    Every size is measured in alternating rounds, so that noise hits all models alike. Written are
    bench-DEVICE.json and, with the extra `plots`, figures of time over slots and over rules.

    Examples:
      nps bench --quick
      nps bench --device cuda --out results/bench
      nps bench --only goals
      nps bench --only slots --slots 2 5 10 --works step --models sequential gnn-512
      nps bench --steps arithmetic --seeds 1 10 50
      nps bench --table results/bench/bench-cpu.json
    """
    from nps.bench import command
    from nps.bench.report import read, report
    from nps.bench.steps import table as step_table
    from nps.inspect.report import Report

    options = parse(command.BenchArgs, args, prog="nps bench", about=_about(bench))
    if options.table is not None:
        report(read(options.table)).show(Console())
        return
    _device(options.device)
    if options.steps is not None:
        steps = command.run_steps(options)
        path = command.write_steps(steps, options)
        Report(f"nps bench --steps {options.steps}", [step_table(steps["rows"])]).show(Console())
        print(f"\nWritten: {path}")
        return
    measured = command.run(options, lambda some: command.write(some, options.out, draw=False))
    paths = command.write(measured, options.out)
    report(measured).show(Console())
    print("\nWritten: " + ", ".join(map(str, paths)))


# -- shared ----------------------------------------------------------------------------------------

COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "run": run,
    "train": train,
    "eval": evaluate,
    "sweep": sweep,
    "table": table,
    "presets": presets,
    "bench": bench,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `nps`."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        _dispatch(args)
    except UserError as error:
        say(f"error: {error}")
        sys.exit(2)
    except RunFailed as error:
        say(f"error: {error}")
        sys.exit(1)
    except Interrupted as stop:
        say(f"{stop}; the same command goes on from there")
        sys.exit(stop.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # e.g. `nps presets | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(args: list[str]) -> None:
    if not args or args[0] in ("-h", "--help"):
        print(USAGE, end="")
    elif args[0] == "--version":
        print(__version__)
    elif args[0] in COMMANDS:
        COMMANDS[args[0]](args[1:])
    else:
        raise UserError(f"unknown command {args[0]!r}{nearest(args[0], COMMANDS)}")


def _positional(command: str, what: str, args: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The leading argument of a command; its --help needs none."""
    if args and not args[0].startswith("-"):
        return args[0], args[1:]
    if args and args[0] in ("-h", "--help"):
        function = COMMANDS[command]
        print(f"nps {command} {what} [flags]\n\n{_about(function)}\n")
        print(f"All flags: nps {command} {what} --help")
        sys.exit(0)
    raise UserError(f"nps {command}: expected {what} first, e.g. {_example(COMMANDS[command])}")


def _about(function: Callable[..., None], first: str = "") -> str:
    lines = [line[4:] if line.startswith("    ") else line for line in _doc(function)]
    text = "\n".join(lines).strip()
    return f"{first}\n\n{text}" if first else text


def _example(function: Callable[..., None]) -> str:
    return next(line.strip() for line in _doc(function) if line.strip().startswith("nps "))


def _doc(function: Callable[..., None]) -> list[str]:
    return (function.__doc__ or "").splitlines()


def _field(about: str, *default: Any) -> Any:
    """A dataclass field with its line of help, required without a default."""
    value = default[0] if default else dataclasses.MISSING
    return dataclasses.field(default=value, metadata={"help": about})


def _device(name: str) -> Any:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device here")
    return torch.device(name)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise UserError(message)
