"""The report on MNIST transformations: the paper's table and error beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import NotRequired, TypedDict

from nps.experiments import changes
from nps.experiments.experiment import Experiment
from nps.experiments.mnist import sections
from nps.experiments.results import Result, by_variant, read_results
from nps.experiments.summaries import count, median_run, spread, wall_time
from nps.inspect.report import Heading, Report, Table
from nps.inspect.rules import usage
from nps.worlds.transformations import EVERY_OPERATION

PAPER_MSE = {"mnist": "0.02"}
PAPER_TABLE = [
    # in our order of operations: rotate right, rotate left, translate up, translate down
    [0, 0, 5030, 0],
    [0, 0, 0, 4981],
    [0, 4950, 0, 0],
    [5039, 0, 0, 0],
]
LABELS = {
    "mnist": "NPS (paper's settings)",
    "mnist-authors": "NPS, the authors' program",
    "mnist-balanced": "mnist-balanced (ours)",
    "mnist-energy": "mnist-energy (ours)",
    "mnist-mlp": "One MLP, no rules",
    "mnist-fifth": "NPS, fifth rule added",
}


class Floors(TypedDict):
    black: float
    copy: float


class Tested(TypedDict):
    """The fields of test.json that every report reads."""

    mse: float
    floors: Floors
    segregation: NotRequired[float]
    changed_image: NotRequired[float]
    table: NotRequired[list[list[int]]]


def write_report(path: Path, experiment: Experiment) -> Report:
    """Tables and figures of the tested runs at `path`."""
    results = by_variant(read_results(path), LABELS)
    report = Report("MNIST transformation: a rule for each operation")
    report.add(*changes.notice(results.values(), experiment))
    report.add(summary_table(results), choices_table(results))
    report.add(Heading("Which rule serves which operation"))
    for name, runs in results.items():
        if all("table" in run.test for run in runs):
            report.add(usage_of(name, median_run(runs, "segregation")))
    labels = {name: label(name).split(" (")[0] for name in results}
    report.add(*sections.grid(results, labels))
    report.add(*sections.composition(results, labels))
    report.add(*sections.deletion(results, labels))
    report.add(*sections.fifth(results, labels))
    report.add(*changes.provenance(results.values(), experiment))
    return report


def label(name: str) -> str:
    return LABELS.get(name, name)


def summary_table(results: dict[str, list[Result]]) -> Table:
    """The results table of the docs, with the baselines that need no model."""
    rows = []
    for name, runs in results.items():
        chooses = all("segregation" in run.test for run in runs)
        rows.append(
            [
                label(name),
                PAPER_MSE.get(name, "–"),
                spread(runs, "mse", ".4f"),
                spread(runs, "segregation", ".3f") if chooses else "–",
                count(runs, is_perfect) if chooses else "–",
                wall_time(runs),
            ]
        )
    floors = next(iter(results.values()))[0].test["floors"]
    for answer, floor in (("An all-black picture", "black"), ("The input itself", "copy")):
        rows.append([answer, "–", f"{floors[floor]:.4f}", "–", "–", "–"])
    caption = (
        "Test set, median over seeds (range). Segregation: share of uses explained by the best "
        "one-to-one assignment of operations to rules; perfect: seeds in which it is 1 and every "
        "rule was applied to the image."
    )
    columns = ["Model", "Paper's MSE", "MSE", "Segregation", "Perfect", "Training"]
    return Table(columns, rows, caption)


def is_perfect(result: Result) -> bool:
    """True if each operation has one rule, and the rules change the image.

    A diagonal table alone could hide rules that draw the same picture for every digit.
    """
    return bool(result.test["segregation"] == 1.0 and result.test["changed_image"] == 1.0)


def choices_table(results: dict[str, list[Result]]) -> Table:
    """Whether the slots have the roles that the task intends."""
    metrics = ("asked_by_operation", "changed_image", "nmi")
    rows = [
        [label(name), *(spread(runs, metric, ".3f") for metric in metrics)]
        for name, runs in results.items()
        if all(metric in run.test for run in runs for metric in metrics)
    ]
    caption = (
        "Operation selects: share of pairs in which the operation's slot selected the rule. Image "
        "changes: in which the rule was applied to the image; one applied to the operation draws "
        "one picture for every digit. NMI: normalised mutual information of operation and rule."
    )
    return Table(["Model", "Operation selects", "Image changes", "NMI"], rows, caption)


def usage_of(name: str, result: Result) -> Table:
    """Uses of each rule for each operation, beside the paper's."""
    table = result.test["table"]
    names = [operation.replace("_", " ") for operation in EVERY_OPERATION[: len(table)]]
    caption = f"{label(name)}: uses on the test set, seed {result.seed}"
    return usage(names, table, caption, PAPER_TABLE if name == "mnist" else None)
