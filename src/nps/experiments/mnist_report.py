"""What the MNIST transformation experiment shows: the paper's table and number, beside ours."""

from __future__ import annotations

from pathlib import Path

from nps.experiments.results import Result, count, median_run, read_results, spread
from nps.inspect.report import Heading, Report, Table
from nps.worlds.transformations import EVERY_OPERATION

PAPER_MSE = {"mnist": "0.02"}
PAPER_TABLE = {
    "rotate_right": [0, 0, 5030, 0],
    "rotate_left": [0, 0, 0, 4981],
    "translate_up": [0, 4950, 0, 0],
    "translate_down": [5039, 0, 0, 0],
}
LABELS = {
    "mnist": "NPS (paper's settings)",
    "mnist-balanced": "mnist-balanced (ours)",
    "mnist-mlp": "One MLP, no rules",
    "mnist-fifth": "NPS, fifth rule added",
}


def write_report(folder: Path) -> Report:
    """Tables from the run logs in `folder`."""
    results = read_results(folder)
    report = Report("MNIST transformation: a rule for each operation")
    report.add(summary_table(results), Heading("Which rule serves which operation"))
    for name, runs in results.items():
        if all("table" in run.test for run in runs):
            report.add(usage(name, median_run(runs, "segregation")))
    return report


def summary_table(results: dict[str, list[Result]]) -> Table:
    """The results table of README and docs, with what needs no model."""
    rows = []
    for name in sorted(results, key=list(LABELS).index):
        runs = results[name]
        chooses = all("segregation" in run.test for run in runs)
        rows.append(
            [
                LABELS[name],
                PAPER_MSE.get(name, "–"),
                spread(runs, "mse", ".4f"),
                spread(runs, "segregation", ".3f") if chooses else "–",
                count(runs, lambda r: r.test["segregation"] == 1.0) if chooses else "–",
            ]
        )
    floors = next(iter(results.values()))[0].test["floors"]
    for label, floor in (("An all-black picture", "black"), ("The input itself", "copy")):
        rows.append([label, "–", f"{floors[floor]:.4f}", "–", "–"])
    caption = (
        "Test set, median over seeds (range). Segregation: share of uses explained by the best "
        "one-to-one assignment of operations to rules; perfect: seeds in which it is 1."
    )
    return Table(["Model", "Paper's MSE", "MSE", "Segregation", "Perfect"], rows, caption)


def usage(name: str, result: Result) -> Table:
    """Operation × rule, and the paper's numbers."""
    table = result.test["table"]
    with_paper = name == "mnist"
    columns = ["", *(f"rule {i}" for i in range(len(table[0])))]
    columns += [f"paper {i + 1}" for i in range(4)] if with_paper else []
    rows = []
    for operation, uses in zip(EVERY_OPERATION, table, strict=False):
        cells = [*uses, *(PAPER_TABLE[operation] if with_paper else [])]
        rows.append([operation.replace("_", " "), *map(str, cells)])
    return Table(columns, rows, f"{LABELS[name]}: uses on the test set, seed {result.seed}")
