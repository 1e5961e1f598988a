"""`nps bench`: flags to groups of cases, measured rows to JSON and figures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from nps.bench.cases import (
    AXES,
    MODELS,
    MODES,
    QUICK_MODELS,
    WORKS,
    Axis,
    Grid,
    Group,
    Mode,
    Work,
    once,
    sweep,
)
from nps.bench.figures import time_over
from nps.bench.floor import Machine, probe
from nps.bench.goals import goal_groups
from nps.bench.measure import Row, measure, with_floor
from nps.bench.report import SCHEMA, Bench
from nps.bench.steps import SEEDS, measure_steps
from nps.errors import UserError, nearest
from nps.experiments import find_preset
from nps.files import os_errors_in_one_line, replace_file, write_json
from nps.inspect import figures
from nps.training.progress import ProgressLine
from nps.training.provenance import describe

Section = Literal["centre", "slots", "rules", "batch", "goals"]
SECTIONS: tuple[Section, ...] = ("centre", "slots", "rules", "batch", "goals")
SECONDS_BETWEEN_SAVES = 5.0
DRAWN: tuple[Axis, ...] = ("slots", "rules")


@dataclass(frozen=True)
class BenchArgs:
    device: Literal["cpu", "cuda"] = "cpu"
    """cpu or cuda."""
    out: Path = Path("runs/bench")
    """Folder for bench-DEVICE.json and the figures."""
    only: tuple[Section, ...] = ()
    """Sections to measure: all models at the centre, over one axis, or the goals (default: all)."""
    works: tuple[Work, ...] = ()
    """forward, step (forward and backward), rollout (default: all; with --quick the first two)."""
    modes: tuple[Mode, ...] = ()
    """How layers run. Default: eager, on CUDA captured as well, and all modes at the centre."""
    models: tuple[str, ...] = ()
    """Models to measure (default: all); ratios need gnn-512."""
    batch: tuple[int, ...] = ()
    """Batch sizes; the first is the centre if the usual centre is not one of them."""
    slots: tuple[int, ...] = ()
    """Numbers of slots, likewise."""
    rules: tuple[int, ...] = ()
    """Numbers of rules, likewise."""
    quick: bool = False
    """Measure some models at a few sizes, without compilation and goals."""
    threads: int | None = None
    """CPU threads (default: 2 on the CPU)."""
    rounds: int = 7
    """Alternating rounds; the median is reported."""
    budget: float = 0.5
    """Seconds that a call may take; slower cases are left out and listed."""
    steps: str | None = None
    """Measure whole training steps of this preset instead, for stacks of --seeds."""
    seeds: tuple[int, ...] = SEEDS
    """Numbers of seeds trained together, for --steps."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """Of the training steps, for --steps."""
    at: float = 0.0
    """Share of training that is done before the step, for --steps; some presets change."""
    table: tuple[Path, ...] = ()
    """Measure nothing; show the tables of these bench-DEVICE.json files, joined."""
    draw: Path | None = None
    """With --table, draw the figures into this folder."""

    def __post_init__(self) -> None:
        for name in AXES:
            for value in getattr(self, name):
                _at_least_1(f"--{name}", value)
        for value in self.seeds or (0,):
            _at_least_1("--seeds", value)
        _at_least_1("--rounds", self.rounds)
        if not 0 <= self.at < 1:
            raise UserError(f"--at: got {self.at:g}, expected 0 or more and less than 1")
        _at_least_1("--threads", 1 if self.threads is None else self.threads)
        if not self.budget > 0:
            raise UserError(f"--budget: got {self.budget:g}, expected more than 0")
        for model in self.models:
            if model not in MODELS:
                raise UserError(f"--models: unknown {model!r}{nearest(model, MODELS)}")
        for mode in self.modes:
            if mode.endswith("captured") and self.device != "cuda":
                raise UserError(f"--modes {mode}: CUDA graphs need --device cuda")


def _at_least_1(flag: str, value: int) -> None:
    if value < 1:
        raise UserError(f"{flag}: got {value}, expected at least 1")


def plan(args: BenchArgs) -> tuple[Grid, list[Group]]:
    """What is measured, in order."""
    cuda = args.device == "cuda"
    grid = Grid((0, 0, 0), args.batch, args.slots, args.rules).of(args.device, args.quick)
    models = args.models or (QUICK_MODELS if args.quick else tuple(MODELS))
    works = args.works or (WORKS[:2] if args.quick else WORKS)
    default_modes: tuple[Mode, ...] = ("eager", "captured") if cuda else ("eager",)
    everything = MODES if cuda else MODES[:2]
    groups: list[Group] = []
    for section in args.only or SECTIONS[: 4 if args.quick else 5]:
        if section == "goals":
            groups += goal_groups(args.device)
        else:
            at_centre = default_modes if args.quick or section != "centre" else everything
            modes = args.modes or at_centre
            groups += sweep(section, grid, models, works, modes, args.budget)
    return grid, once(groups)


def run(args: BenchArgs, keep: Callable[[Bench], object] = lambda bench: None) -> Bench:
    """Measure all groups. `keep` gets the rows so far every few seconds, so that little is lost."""
    device = torch.device(args.device)
    grid, groups = plan(args)
    cases = sum(len(group.cases) for group in groups)
    with _settings(args.threads or (2 if args.device == "cpu" else None)):
        environment = {**describe(device), "tf32": False, "rounds": args.rounds}
        before, kept_at = probe(device), time.monotonic()

        def bench(machine: Machine, rows: Sequence[Row]) -> Bench:
            measured = [with_floor(row, machine) for row in rows]
            return Bench(args.device, grid.centre, environment, machine, measured)

        with ProgressLine("measuring", cases, 0, "cases") as line:
            rows: list[Row] = []
            for more in measure(groups, device, args.rounds):
                rows += more
                line.update(len(rows))
                if time.monotonic() - kept_at > SECONDS_BETWEEN_SAVES:
                    keep(bench(before, rows))
                    kept_at = time.monotonic()
            # The best of before and after: a peak that a busy moment hid would flatter the layers.
            machine = before.best(probe(device))
    return bench(machine, rows)


def run_steps(args: BenchArgs) -> dict[str, Any]:
    """Measure whole training steps, without writing anything."""
    assert args.steps is not None
    experiment, _ = find_preset(args.steps)
    device = torch.device(args.device)
    threads = args.threads or (experiment.threads if args.device == "cpu" else None)
    with _settings(threads):
        how = (args.seeds, args.rounds, args.precision, args.at)
        rows = measure_steps(experiment, args.steps, device, *how)
        environment = {**describe(device), "precision": args.precision, "rounds": args.rounds}
        environment["at"] = args.at
    return {"schema": SCHEMA, "environment": environment, "rows": rows}


def write_steps(measured: dict[str, Any], args: BenchArgs) -> Path:
    path = args.out / f"steps-{args.steps}-{args.device}.json"
    with os_errors_in_one_line(f"cannot write into {args.out}"):
        args.out.mkdir(parents=True, exist_ok=True)
        write_json(path, {**measured, "rows": [asdict(row) for row in measured["rows"]]})
    return path


def write(bench: Bench, folder: Path, *, draw: bool = True) -> list[Path]:
    """The JSON file and the figures."""
    paths = [folder / f"bench-{bench.device}.json"]
    with os_errors_in_one_line(f"cannot write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(paths[0], bench.to_json())
    return [*paths, *(write_figures(bench, folder) if draw else [])]


def write_figures(bench: Bench, folder: Path) -> list[Path]:
    """Figures over each axis that has at least two sizes; none without matplotlib."""
    paths = []
    with os_errors_in_one_line(f"cannot write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for axis in DRAWN if figures.available() else ():
            image = time_over(bench, axis)
            if image is not None:
                paths.append(folder / f"{bench.device}-time-over-{axis}.png")
                replace_file(paths[-1], image)
    return paths


@contextlib.contextmanager
def _settings(threads: int | None) -> Iterator[None]:
    """Set the threads and exact float32 products, and restore both afterwards."""
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(threads or before[0])
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_float32_matmul_precision(before[1])
