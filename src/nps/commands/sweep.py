"""`nps sweep PRESET`: train a grid of configs with several seeds each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from nps.commands.shared import (
    DataFolder,
    Device,
    about,
    find_device,
    own_data,
    positional,
    require,
)
from nps.errors import RunFailed, one_line, say
from nps.flag_help import flags_of
from nps.flags import parse

MORE = "`nps sweep PRESET --help` also shows the fields of the config, which --grid can vary."


@dataclass(frozen=True, kw_only=True)
class SweepArgs:
    grid: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]],
        tyro.conf.arg(metavar="NAME=VALUE,VALUE,… …"),
    ] = ()
    """Config fields and their values; every combination is one point of the grid."""
    seeds: int = 1
    """Runs per point, with seeds 0, 1, …"""
    out: Path | None = None
    """Folder for runs and table (default: runs/sweep-PRESET); with ray, shared by all nodes."""
    workers: int = 0
    """Runs in parallel (default: one per core; with ray, as many as the cluster has room for)."""
    retries: int = 2
    """How often a training that dies is restarted from its checkpoint."""
    on: Literal["local", "ray"] = "local"
    """Local processes, or Ray tasks (RAY_ADDRESS, else a running cluster, else a new one)."""
    device: Device = "cpu"
    """Where to train: cpu or cuda."""
    data: DataFolder = None


def sweep(args: Sequence[str]) -> None:
    """Train a grid of configs with several seeds each, test them, and write one table.

    The same command again resumes and skips what is complete; more values or seeds extend the
    sweep. A training that dies restarts from its checkpoint. Config flags apply to all points.

    Examples:
      nps sweep arithmetic --grid rules=1,2,4,6 --seeds 5
      nps sweep arithmetic --grid rules=4,6 dropout=0,0.35 --epochs 50 --workers 8
      nps sweep arithmetic-sharp --grid balance=0,0.1,0.3 --seeds 10 --on ray
    """
    from nps.experiments import find_preset
    from nps.experiments.options import require_seeds, require_start
    from nps.inspect.report import Report
    from nps.jobs.grid import parse_grid
    from nps.jobs.sweep import Execution, Sweep, run_sweep

    name, rest = positional(sweep, "PRESET", args, lambda: flags_of(SweepArgs), note=MORE)
    experiment, preset = find_preset(name)
    config: Any = Annotated[experiment.config, tyro.conf.arg(name="")]
    fields = [("config", config, dataclasses.field(default=preset.config))]
    cls = dataclasses.make_dataclass("Args", fields, bases=(SweepArgs,), frozen=True, kw_only=True)
    options: Any = parse(cls, rest, prog=f"nps sweep {name}", about=about(sweep, preset.about))
    data = own_data(experiment, options.data)
    options = dataclasses.replace(options, config=dataclasses.replace(options.config, **data))
    require_seeds(options.seeds)
    for flag in ("workers", "retries"):
        value = getattr(options, flag)
        require(value >= 0, f"--{flag}: got {value}, expected at least 0")
    if options.on == "local":
        find_device(options.device)
    grid = parse_grid(experiment.config, [text for texts in options.grid for text in texts])
    out = options.out or Path("runs", f"sweep-{name}")
    plan = Sweep(experiment, name, options.config, grid, options.seeds, out)
    # Refuse what no run of the sweep could train with before anything is written.
    for point in plan.points():
        if experiment.data_field is not None:
            experiment.prepare(point.config)
        prog = f"nps sweep {name}"
        require_start(experiment, preset, point.config, range(options.seeds), prog)
    execution = Execution(options.on, options.workers, options.retries, options.device)
    outcome = run_sweep(plan, execution, say)
    Report(f"{name}: {out}", [outcome.table]).show(Console())
    print(f"\nAlso as Markdown and JSON: {one_line(f'{out}/table.md, {out}/table.json')}")
    for folder, why in outcome.failed.items():
        say(f"{folder} failed: {why}")
    if outcome.failed:
        runs = f"{len(outcome.failed)} of {len(plan.members())} runs"
        raise RunFailed(f"{runs} failed; the same command retries them")
