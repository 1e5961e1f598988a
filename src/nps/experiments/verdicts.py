"""The README's table: for each experiment with a table in `results/`, does the paper's claim hold?

An experiment's report writes the sentences and fills in the numbers of its published runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nps.experiments import EXPERIMENTS
from nps.experiments.experiment import Experiment
from nps.experiments.tables import RUNS
from nps.inspect.report import Table


def experiments_in(folder: Path) -> list[Experiment[Any, Any]]:
    """The experiments that have a table of runs, `<experiment>/runs.jsonl.xz`, in `folder`."""
    return [each for each in EXPERIMENTS.values() if (folder / each.name / RUNS).exists()]


def verdicts_table(folder: Path) -> Table:
    """A row for each experiment of the paper that has a table of runs in `folder`."""
    rows = []
    for experiment in experiments_in(folder):
        verdict = experiment.verdict(folder / experiment.name)
        if verdict is not None:
            page = f"[{verdict.subject}](docs/experiments/{experiment.name}.md)"
            rows.append([page, verdict.claim, verdict.ours, verdict.holds])
    columns = ["experiment", "the paper's claim", "ours", "holds?"]
    return Table(columns, rows, names=len(columns))
