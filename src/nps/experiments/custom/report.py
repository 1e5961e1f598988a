"""What world models of the user's own episodes show: the ranking beside its floor."""

from __future__ import annotations

from pathlib import Path

from nps.experiments import changes
from nps.experiments.results import provenance, read_results
from nps.experiments.world_models.report import COLUMNS, hidden_table, numbers
from nps.inspect.report import Report, Table

LABELS = {"world-model": "NPS", "world-model-gnn": "GNN"}


def write_report(folder: Path) -> Report:
    """Tables from the run logs in `folder`."""
    results = read_results(folder)
    rows = []
    for name, runs in results.items():
        label = LABELS.get(name, name)
        rows.append([label, *numbers(runs)])
        rows.append([f"{label}: nothing moves", *numbers(runs, "identity_")])
    caption = (
        "Test episodes, mean ± standard deviation over seeds, in per cent, after 1, 5 and 10 steps "
        "(a dash where episodes are too short); a tie is a hit, as in C-SWM. Nothing moves: the "
        "same slots and a transition that leaves them as they are."
    )
    report = Report("World models of your own episodes")
    report.add(*changes.told(results.values()))
    labelled = {LABELS.get(name, name): runs for name, runs in results.items()}
    report.add(Table(["Model", *COLUMNS], rows, caption), hidden_table(labelled))
    report.add(*provenance(results.values()))
    return report
