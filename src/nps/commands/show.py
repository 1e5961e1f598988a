"""What `nps eval` prints: the headline, and with --all every number."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nps.experiments.headline import Headline
from nps.experiments.unedited import COLUMN, Unedited
from nps.inspect.report import Heading, Lines, Report, Text


def eval_report(
    name: Path | str,
    metrics: Mapping[str, Any],
    headline: Headline | None,
    *,
    every: bool,
    flags: Sequence[str] = (),
    before: Unedited | None = None,
) -> Report:
    """The result of a test for the terminal. Without a headline all numbers are shown.

    Args:
        name: the run, as it was given.
        metrics: what the test returned.
        headline: the numbers that matter most.
        every: show all numbers.
        flags: those that were given, for the command that shows all numbers of the same test.
        before: of an edited model, the numbers from before the edits.
    """
    on = f" on {metrics['on']}" if "on" in metrics else ""
    report = Report(f"{name}: {metrics['which']} model, step {metrics['step']}{on}")
    if headline is not None:
        report.add(Text(headline.verdict), headline.table)
    if before is not None:
        report.add(Text(before.line))
    if every or headline is None:
        report.add(Lines(all_numbers(metrics)))
        if before is not None and before.metrics is not None:
            report.add(Heading(COLUMN), Lines(all_numbers(before.metrics)))
    if headline is not None and headline.details is not None:
        report.add(headline.details)
    if headline is not None and not every:
        again = shlex.join(["nps", "eval", str(name), *flags, "--all"])
        report.add(Lines([f"All numbers: {again}"]))  # a line that can be copied whole
    return report


def all_numbers(metrics: Mapping[str, Any]) -> list[str]:
    """One metric per line; those of several horizons (h1_1, h1_5, ...) side by side."""
    numbers = {key: f"{value:.6g}" for key, value in metrics.items() if isinstance(value, float)}
    if "rollouts" in metrics:
        numbers["rollouts"] = str(metrics["rollouts"])
    cells: dict[str, dict[str, str]] = {}
    for key, value in numbers.items():
        name, _, step = key.rpartition("_")
        name, step = (name, step) if step.isdigit() else (key, "")
        cells.setdefault(name, {})[step] = value
    steps = list(dict.fromkeys(step for row in cells.values() for step in row if step))
    width = max(map(len, cells), default=0)
    head = " ".join([f"{'steps':{width}}", *(f"{step:>9}" for step in steps)])
    rows = [
        f"{name:{width}} {row['']}"
        if "" in row
        else " ".join([f"{name:{width}}", *(f"{row.get(step, ''):>9}" for step in steps)])
        for name, row in cells.items()
    ]
    return [head, *rows] if steps else rows
