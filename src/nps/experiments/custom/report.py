"""The report on world models of the user's own episodes: the ranking beside its baseline."""

from __future__ import annotations

from pathlib import Path

from nps.experiments import changes
from nps.experiments.experiment import Experiment
from nps.experiments.results import by_variant, read_results
from nps.experiments.world_models.report import COLUMNS, hidden_table, ranking_cells
from nps.inspect.report import Report, Table

LABELS = {"world-model": "NPS", "world-model-gnn": "GNN"}


def write_report(path: Path, experiment: Experiment) -> Report:
    """Tables of the tested runs at `path`."""
    results = by_variant(read_results(path))
    rows = []
    for name, runs in results.items():
        label = LABELS.get(name, name)
        rows.append([label, *ranking_cells(runs)])
        rows.append([f"{label}: nothing moves", *ranking_cells(runs, "identity_")])
    caption = (
        "Test episodes, mean ± standard deviation over seeds, in per cent, after 1, 5 and 10 steps "
        "(a dash where episodes are too short); a tie is a hit, as in C-SWM. Nothing moves: the "
        "same slots and a transition that leaves them as they are."
    )
    report = Report("World models of your own episodes")
    report.add(*changes.notice(results.values(), experiment))
    labelled = {LABELS.get(name, name): runs for name, runs in results.items()}
    report.add(Table(["Model", *COLUMNS], rows, caption), hidden_table(labelled))
    report.add(*changes.provenance(results.values(), experiment))
    return report
