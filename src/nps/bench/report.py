"""A bench as tables for the terminal, one JSON file, and two figures.

One table for each axis, workload and mode, with one row per model and one column per size; at the
centre, all measurements of each model. Cases that were left out are listed at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from nps.bench.cases import AXES, MODELS, SLOT_DIM, Axis
from nps.bench.floor import Machine
from nps.bench.goals import goals
from nps.bench.measure import Row
from nps.errors import UserError
from nps.inspect.report import Heading, Lines, Part, Report, Table, Text
from nps.reading import read_json

SCHEMA = 1
LETTERS = {"batch": "B", "slots": "M", "rules": "N"}
WORK_WORDS = {
    "forward": "forward (evaluation)",
    "step": "forward and backward (training, with noise)",
    "rollout": "10-step rollout (evaluation)",
}


@dataclass(frozen=True)
class Bench:
    """A whole run, as stored in `bench-DEVICE.json`."""

    device: str
    centre: tuple[int, int, int]
    """Batch, slots, rules."""
    environment: dict[str, Any]
    machine: Machine
    rows: list[Row]

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **dataclasses.asdict(self), "goals": self.goals()}

    def goals(self) -> list[dict[str, Any]]:
        """The goals of this device that were measured, each with its number."""
        if not any(row.section == "goals" for row in self.rows):
            return []
        results = []
        for goal in goals(self.device):
            value, why = goal.measured(self.rows)
            best, _ = goal.measured(self.rows, least=True)
            results.append(
                {
                    "goal": goal.text,
                    "bound": goal.bound,
                    "at_least": goal.at_least,
                    "unit": goal.unit,
                    "measured": value,
                    "met": None if value is None else goal.met(value),
                    "fastest_rounds": best,
                    "why": why,
                }
            )
        return results


def read(path: Path) -> Bench:
    """A bench from its file."""
    data = read_json(path, Any, finite=False)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UserError(f"{path}: not a bench of this version of nps")
    try:
        return Bench(
            data["device"],
            tuple(data["centre"]),
            data["environment"],
            Machine(**data["machine"]),
            [Row(**row) for row in data["rows"]],
        )
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged ({error})") from None


def join(benches: Sequence[Bench]) -> Bench:
    """Join runs on one kind of machine, since a long sweep may be measured in parts."""
    first = benches[0]
    for other in benches[1:]:
        theirs = (other.device, other.centre, other.environment["device"])
        if theirs != (first.device, first.centre, first.environment["device"]):
            raise UserError("--table: these were not measured on one machine around one centre")
    machine = reduce(Machine.best, (bench.machine for bench in benches))
    rows = [row for bench in benches for row in bench.rows]
    return replace(first, machine=machine, rows=rows)


def report(bench: Bench) -> Report:
    environment = bench.environment
    page = Report(f"nps bench: {environment['device']}")
    page.add(Text(_words(bench)))
    swept = [row for row in bench.rows if row.section != "goals"]
    page.add(*_centre(bench, swept))
    for axis in AXES:
        page.add(*_axis(bench, axis, swept))
    page.add(*_goals(bench))
    left_out = dict.fromkeys(f"{row.case}: {row.skipped}" for row in bench.rows if row.skipped)
    if left_out:
        page.add(Heading("Left out"), Lines(list(left_out)))
    return page


def _words(bench: Bench) -> str:
    machine, environment = bench.machine, bench.environment
    launch = machine.launch_seconds
    rates = f"{machine.flops_per_second / 1e9:.3g} GFLOP/s in float32 (TF32 off)"
    rates += f", {machine.bytes_per_second / 1e9:.3g} GB/s"
    rates += "" if launch is None else f", {1e6 * launch:.2f} µs per launch in a graph"
    where = f"torch {environment['torch']}, {environment['threads']} threads"
    timed = [row for row in bench.rows if row.ms_least and row.ms_most]
    noisy = sum(row.ms_most > 2 * row.ms_least for row in timed)  # type: ignore[operator]
    noise = f"In {noisy} of {len(timed)} cases the slowest round took over twice the fastest."
    return f"{where}; probed: {rates}. Slots of size {SLOT_DIM}, float32. {noise}"


def _centre(bench: Bench, rows: Sequence[Row]) -> list[Part]:
    """All measurements of each model, for each workload and mode."""
    parts: list[Part] = []
    middle = [row for row in rows if (row.batch, row.slots, row.rules) == bench.centre]
    columns = ["Model", "ms", "× GNN", "10³ par.", "peak MB", "MFLOP", "ops", "÷ floor"]
    columns += ["÷ launches"] if bench.machine.launch_seconds else []
    for work, mode in dict.fromkeys((row.work, row.mode) for row in middle):
        chosen = [row for row in middle if (row.work, row.mode) == (work, mode)]
        parts.append(Table(columns, [_line(row) for row in chosen], f"{WORK_WORDS[work]}, {mode}"))
    if not parts:
        return []
    b, m, n = bench.centre
    about = (
        "× GNN: times faster than GNN 512. Peak: what a call adds in eager mode. Ops: operations "
        "launched in eager mode. ÷ floor: time over the least this machine allows, all FLOPs at "
        "its peak rate or weights, input and output moved once."
    )
    if bench.machine.launch_seconds:
        about += " ÷ launches: time over that of as many empty kernels in a graph."
    return [Heading(f"Batch {b}, {m} slots, {n} rules"), *parts, Text(about)]


def _line(row: Row) -> list[str]:
    def scaled(value: int | None, unit: float) -> float | None:
        return None if value is None else value / unit

    numbers = [row.ms, row.faster, scaled(row.parameters, 1e3), scaled(row.peak_bytes, 1e6)]
    numbers += [scaled(row.flops, 1e6), row.launches, row.distance]
    if row.launch_floor_ms and row.ms:
        numbers.append(row.ms / row.launch_floor_ms)
    return [MODELS[row.model].label, *map(_number, numbers)]


def _axis(bench: Bench, axis: Axis, rows: Sequence[Row]) -> list[Part]:
    """Times over one axis through the centre."""
    along = [row for row in rows if on_axis(row, axis, bench.centre)]
    sizes = sorted({getattr(row, axis) for row in along})
    if len(sizes) < 2:
        return []
    parts: list[Part] = [Heading(f"Over {axis}: ms, and how many times faster than GNN 512")]
    for work, mode in dict.fromkeys((row.work, row.mode) for row in along):
        cells: dict[str, dict[int, str]] = {}
        for row in along:
            if (row.work, row.mode) == (work, mode):
                cells.setdefault(row.model, {})[getattr(row, axis)] = _cell(row)
        lines = [
            [MODELS[model].label, *(at.get(size, "") for size in sizes)]
            for model, at in cells.items()
        ]
        columns = ["Model", *(f"{LETTERS[axis]}={size}" for size in sizes)]
        if any(len(at) > 1 for at in cells.values()):
            parts.append(Table(columns, lines, f"{WORK_WORDS[work]}, {mode}"))
    return parts


def on_axis(row: Row, axis: Axis, centre: Sequence[int]) -> bool:
    """True if the row is at the centre in every size but this one."""
    others = zip(AXES, centre, strict=True)
    return all(getattr(row, name) == value for name, value in others if name != axis)


def _goals(bench: Bench) -> list[Part]:
    lines = []
    for goal in bench.goals():
        sign = "≥" if goal["at_least"] else "≤"
        bound = "–" if goal["bound"] is None else f"{sign} {goal['bound']:g} {goal['unit']}"
        value, best = goal["measured"], goal["fastest_rounds"]
        number = goal["why"] if value is None else f"{value:.3g} {goal['unit']}"
        met = {True: "yes", False: "no", None: "–"}[goal["met"]]
        lines.append([goal["goal"], bound, number, met, "–" if best is None else f"{best:.3g}"])
    if not lines:
        return []
    caption = (
        f"{'Captured' if bench.device == 'cuda' else 'Eager'}. The time of a call, or how many "
        "times as long the other case takes; –: for comparison only. Fastest: the same from the "
        "fastest rounds, which a busy machine spoils least."
    )
    columns = ["Case", "goal", "measured", "met", "fastest"]
    return [Heading("Goals"), Table(columns, lines, caption)]


def _cell(row: Row) -> str:
    if row.ms is None:
        return "left out"
    return _number(row.ms) + ("" if row.faster is None else f"\n{_number(row.faster)}×")


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or isinstance(value, int) else f"{value:.3g}"
