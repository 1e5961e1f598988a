"""The table of a sweep: one row per point, with test metrics as median and range over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from nps.experiments.results import Result
from nps.experiments.summaries import spread, values
from nps.inspect.report import Table
from nps.jobs.grid import Point
from nps.training.config import spell

Results = Mapping[str, Sequence[Result]]
"""Name of a point -> its tested runs."""


def table(points: Sequence[Point], results: Results, seeds: int, main: Sequence[str] = ()) -> Table:
    """For people: table.md, and the terminal, which has room for the `main` metrics only."""
    names = list(points[0].values) or ["preset"]
    every = list(dict.fromkeys(name for runs in results.values() for name in metrics(runs)))
    shown = [name for name in main if name in every] or every
    rows = []
    for point in points:
        runs = results[point.name]
        measured = metrics(runs)
        rows.append(
            [
                *([spell(value) for value in point.values.values()] or [point.name]),
                str(seeds) if len(runs) == seeds else f"{len(runs)} of {seeds}",
                *(spread(runs, name, ".3g") if name in measured else "–" for name in shown),
            ]
        )
    caption = "Best model on validation, tested: median over seeds (range)."
    if len(shown) < len(every):
        caption += f" {len(every) - len(shown)} more metrics are in table.md."
    headings = [name.replace("_", " ") for name in shown]  # a narrow terminal breaks at spaces
    return Table([*names, "seeds", *headings], rows, caption, names=len(names))


def record(points: Sequence[Point], results: Results) -> list[dict[str, Any]]:
    """For programs: table.json."""
    return [
        {
            "folder": point.name,
            "values": point.values,
            "seeds": [result.seed for result in results[point.name]],
            "metrics": {
                name: _summary(values(results[point.name], name))
                for name in metrics(results[point.name])
            },
        }
        for point in points
    ]


def metrics(runs: Sequence[Result]) -> list[str]:
    """The numbers that all runs of a point have, in the order of the test."""
    tests = [result.test for result in runs]
    return [
        name
        for name in (tests[0] if tests else {})
        if all(type(t.get(name)) is float for t in tests)
    ]


def _summary(numbers: Sequence[float]) -> dict[str, Any]:
    return {
        "median": statistics.median(numbers),
        "min": min(numbers),
        "max": max(numbers),
        "values": list(numbers),
    }
