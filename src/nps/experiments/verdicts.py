"""Does each claim of the paper hold? The tables of docs/claims.md, and their short form in the
README: of each experiment with a table in `results/`, the first claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nps.experiments import EXPERIMENTS
from nps.experiments.claims import HOLDS, NONE, Claim, Finding, commands, find
from nps.experiments.experiment import Experiment
from nps.experiments.tables import RUNS
from nps.inspect.report import Table


class Checked(NamedTuple):
    """A claim and what our runs say about it."""

    claim: Claim
    found: Finding
    commands: Sequence[str] = ()
    """That train the models it is about; none if they do not exist."""


def experiments_in(folder: Path) -> list[Experiment[Any, Any]]:
    """The experiments that have a table of runs, `<experiment>/runs.jsonl.xz`, in `folder`."""
    return [each for each in EXPERIMENTS.values() if (folder / each.name / RUNS).exists()]


def check(experiment: Experiment[Any, Any], folder: Path) -> list[Checked]:
    """The claims on an experiment, checked with the published runs of its table in `folder`."""
    has_runs = (folder / RUNS).exists()
    published = experiment.published(folder) if has_runs else []
    left_out = experiment.left_out(folder) if has_runs else {}
    return [
        Checked(
            claim,
            find(claim, published, left_out),
            commands(experiment.name, experiment.flags, claim, published),
        )
        for claim in experiment.claims
    ]


def verdicts_table(folder: Path) -> Table:
    """The README's table, a row for each experiment of the paper with a table of runs. The reasons
    are in docs/claims.md."""
    rows = []
    for experiment in experiments_in(folder):
        for claim in experiment.claims[:1]:
            found = find(claim, experiment.published(folder / experiment.name))
            page = f"[{experiment.subject}](docs/experiments/{experiment.name}.md)"
            rows.append([page, claim.says, found.ours, f"**{found.holds}**"])
    columns = ["experiment", "the paper's claim", "ours", "holds?"]
    return Table(columns, rows, names=len(columns))


def claims_tables(folder: Path) -> dict[str, Table]:
    """The tables of docs/claims.md: how many claims hold, then all of them by experiment."""
    checked = {
        (each.name, each.subject): check(each, folder / each.name)
        for each in EXPERIMENTS.values()
        if each.claims
    }
    counts = {subject: rows for (_, subject), rows in checked.items()}
    named = {f"claims {name}": claims_table(rows) for (name, _), rows in checked.items()}
    return {"claims": count_table(counts), **named}


def count_table(checked: Mapping[str, Sequence[Checked]]) -> Table:
    """How many claims on each experiment hold, and how many of all."""
    everything = {"**all**": [row for rows in checked.values() for row in rows]}
    rows = []
    for subject, claims in {**checked, **everything}.items():
        verdicts = [each.found.holds for each in claims]
        counts = [verdicts.count(word) for word in HOLDS]
        rows.append([subject, str(len(claims)), *(str(n) if n else NONE for n in counts)])
    return Table(["experiment", "claims", *HOLDS], rows)


def claims_table(checked: Sequence[Checked]) -> Table:
    """A row for each claim."""
    rows = []
    for claim, found, how in checked:
        why = "<br>".join([found.reason, *(f"`{command}`" for command in how)])
        says = f"{claim.says} ({claim.where})"
        rows.append([says, claim.paper, found.ours, f"**{found.holds}**", why])
    columns = ["claim", "paper", "ours", "holds?", "why, and the command"]
    return Table(columns, rows, names=len(columns))
