"""The report on coordinate arithmetic: the paper's tables and figure beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from nps import schema
from nps.errors import UserError, extra
from nps.experiments import changes
from nps.experiments.experiment import Experiment
from nps.experiments.results import Result, by_variant, read_results
from nps.experiments.summaries import count, median_run, spread
from nps.inspect import figures
from nps.inspect.report import Figure, Heading, Lines, Report, Table, Text
from nps.inspect.rules import usage
from nps.worlds.arithmetic import OPERATIONS

if TYPE_CHECKING:
    from jaxtyping import Int
    from numpy import ndarray

# The paper: section 4.1, its table for 5 rules, and the table for 6 in a comment of the appendix.
# Rows in our order of operations (the paper's table names the rows, its comment numbers them).
PAPER_MSE = {"arithmetic": "0.01 ± 0.001", "arithmetic-baseline": "0.04 ± 0.008"}
PAPER_TABLES = {
    "arithmetic-5-rules": [
        [360, 99, 45, 13, 0],
        [0, 482, 0, 1, 0],
        [0, 57, 15, 99, 335],
        [0, 39, 453, 2, 0],
    ],
    "arithmetic-6-rules": [
        [65, 34, 0, 322, 0, 96],
        [478, 5, 0, 0, 0, 0],
        [41, 66, 296, 0, 103, 0],
        [8, 486, 0, 0, 0, 0],
    ],
}
LABELS = {
    "arithmetic": "NPS (paper's settings)",
    "arithmetic-baseline": "Routing MLP (baseline)",
    "arithmetic-baseline-noisy": "Routing MLP, noisy",
    "arithmetic-5-rules": "NPS, 5 rules",
    "arithmetic-6-rules": "NPS, 6 rules",
    "arithmetic-other": "NPS, other reading",
    "arithmetic-sharp": "arithmetic-sharp (ours)",
    "arithmetic-sharp-any": "arithmetic-sharp-any (ours)",
    "arithmetic-energy": "arithmetic-energy (ours)",
    "arithmetic-energy-any": "arithmetic-energy-any (ours)",
}


class RuleInWords(TypedDict):
    rule: int
    says: str
    r2: float | None
    uses: int


class Tested(TypedDict):
    """The fields of test.json that are read here."""

    mse: float
    segregation: float
    nmi: float
    primary_accuracy: float
    context_accuracy: float
    rules: list[RuleInWords]
    table: list[list[int]]


def write_report(path: Path, experiment: Experiment) -> Report:
    """Tables and figures of the tested runs at `path`."""
    results = by_variant(read_results(path))
    report = Report("Coordinate arithmetic: rules discovered from demonstrations")
    report.add(*changes.notice(results.values(), experiment))
    report.add(summary_table(results), choices_table(results))
    shown = {name: median_run(runs, "segregation") for name, runs in results.items()}
    for name in ("arithmetic", "arithmetic-sharp"):
        if name in shown:
            about = (
                f"{LABELS.get(name, name)}, the seed with median segregation ({shown[name].seed})"
            )
            report.add(Heading(f"The rules in words: {about}"), in_words(shown[name].test["rules"]))
    report.add(Heading("Which rule serves which operation"))
    for name, result in shown.items():
        caption = f"{LABELS.get(name, name)}: uses on the test set, seed {result.seed}"
        report.add(usage(OPERATIONS, result.test["table"], caption, PAPER_TABLES.get(name)))
    report.add(*_figure(shown))
    report.add(*changes.provenance(results.values(), experiment))
    return report


def is_clean(result: Result) -> bool:
    """True if each operation has a rule of its own, but for one use in a hundred."""
    return bool(result.test["segregation"] >= 0.99)


def summary_table(results: dict[str, list[Result]]) -> Table:
    """The results table of the docs."""
    rows = []
    for name in _ordered(results):
        runs = results[name]
        rows.append(
            [
                LABELS.get(name, name),
                PAPER_MSE.get(name, "–"),
                spread(runs, "mse", ".3g"),
                spread(runs, "segregation", ".3f"),
                count(runs, is_clean),
            ]
        )
    columns = ["Model", "Paper's MSE", "MSE", "Segregation", "≥ 0.99"]
    caption = (
        "Test set, median over seeds (range). Segregation: share of uses explained by the best "
        "one-to-one assignment of operations to rules; ≥ 0.99: seeds that reach it."
    )
    return Table(columns, rows, caption)


def _ordered(names: Iterable[str]) -> list[str]:
    """The presets in our order, then whatever else was trained, such as the points of a sweep."""
    known = list(LABELS)
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


def choices_table(results: dict[str, list[Result]]) -> Table:
    """How often each choice is the right one."""
    metrics = ("nmi", "primary_accuracy", "context_accuracy")
    rows = [
        [LABELS.get(name, name), *(spread(results[name], metric, ".2f") for metric in metrics)]
        for name in _ordered(results)
    ]
    caption = (
        "NMI: normalised mutual information of operation and rule. Primary, context: share of "
        "examples in which the right point was chosen."
    )
    return Table(["Model", "NMI", "Primary", "Context"], rows, caption)


def in_words(rules: Sequence[dict[str, Any]]) -> Lines:
    lines = []
    for rule in rules:
        fit = f"(R² {rule['r2']:.3f}, {rule['uses']} uses)" if rule["r2"] is not None else ""
        lines.append(f"rule {rule['rule']}: {rule['says']}   {fit}".rstrip())
    return Lines(lines)


def _tables(run: Result, logged: list[Any]) -> Int[ndarray, "epochs operations rules"]:
    """The uses of each rule for each operation in a log, if they are all there."""
    sizes = {tuple(map(len, table)) for table in logged if schema.fits(table, list[list[int]])}
    if len(sizes) != 1 or not all(schema.fits(table, list[list[int]]) for table in logged):
        raise UserError(f"{run.path}: its metric log is damaged: tables of rule use are missing")
    return np.array(logged)


def _figure(shown: dict[str, Result]) -> list[Heading | Figure | Text]:
    drawn = ("arithmetic", "arithmetic-baseline", "arithmetic-sharp")
    names = [name for name in drawn if name in shown]
    if not names:
        return []
    panels: dict[str, tuple[Sequence[int], np.ndarray]] = {}
    for name in names:
        rows = [row for row in shown[name].curve() if "validation" in row]
        tables = _tables(shown[name], [row["validation"].get("table") for row in rows])
        panels[LABELS.get(name, name).split(" (")[0]] = ([row["epoch"] for row in rows], tables)
    if not figures.available():
        return [Text(f"No figure: it needs the extra, {extra('plots')}")]
    caption = "How often each rule serves each operation, over training, on the validation set."
    png = figures.usage_over_training(panels, OPERATIONS)
    return [Heading("Rules segregate while training"), Figure("rule-use", png, caption)]
