"""The report on world models of the user's own episodes.

It begins with what can be concluded: the verdict on each model, and the share of predicted steps
next to copying the input and chance. C-SWM's ranking follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nps.experiments import changes
from nps.experiments.custom.inspect import curves_figure, shares_table
from nps.experiments.custom.shares import has_shares, shares
from nps.experiments.custom.verdict import compare, verdict
from nps.experiments.experiment import Experiment
from nps.experiments.results import Result, by_variant, read_results
from nps.experiments.world_models.report import COLUMNS, hidden_table, ranking_cells
from nps.inspect.report import Heading, Part, Report, Table, Text

LABELS = {"world-model": "NPS", "world-model-recipe": "NPS, the recipe", "world-model-gnn": "GNN"}

Runs = Mapping[str, Sequence[Result]]
"""Model -> its runs, one a seed."""


def write_report(path: Path, experiment: Experiment) -> Report:
    """Verdict, tables and curves of the tested runs at `path`."""
    results = by_variant(read_results(path))
    runs = {LABELS.get(name, name): of for name, of in results.items()}
    report = Report("World models of your own episodes")
    report.add(*changes.notice(results.values(), experiment))
    report.add(*conclusions(runs))
    report.add(*curves_figure({name: [run.curve() for run in of] for name, of in runs.items()}))
    report.add(Heading("C-SWM's ranking"), *ranking_tables(runs))
    report.add(*changes.provenance(results.values(), experiment))
    return report


def conclusions(runs: Runs) -> list[Part]:
    """A verdict for each model, and the table that it is based on."""
    known = {name: of for name, of in runs.items() if all(has_shares(run.test) for run in of)}
    parts: list[Part] = []
    if known:
        tests = {name: [run.test for run in of] for name, of in known.items()}
        rows = {name: shares(of) for name, of in tests.items()}
        lines = [f"{name}: {verdict(of, known[name][0].config)}" for name, of in tests.items()]
        if len(rows) > 1:
            lines.append(compare(rows))
        parts += [*map(Text, lines), shares_table(rows, next(iter(tests.values()))[0])]
    if older := [name for name in runs if name not in known]:
        parts.append(
            Text(
                f"{', '.join(older)}: tested by an older version, or test.json is damaged; nps "
                "eval tests them again."
            )
        )
    return parts


def ranking_tables(runs: Runs) -> list[Table]:
    """H@1 and MRR, and what they do not show."""
    rows = []
    for name, of in runs.items():
        rows.append([name, *ranking_cells(of)])
        rows.append([f"{name}: nothing moves", *ranking_cells(of, "identity_")])
    counts = [run.test.get("rollouts") for of in runs.values() for run in of]
    caption = (
        "Test episodes, mean ± standard deviation over seeds, in per cent, after 1, 5 and 10 steps "
        "(a dash where episodes are too short); a tie is a hit, as in C-SWM. Nothing moves: the "
        "same slots and a transition that leaves them as they are. Where states repeat, H@1 counts "
        "right predictions as wrong."
    )
    if least := min((count for count in counts if isinstance(count, int)), default=0):
        caption += f" Ranks are among {least} roll-outs: by chance H@1 is {100 / least:.2g}."
    return [Table(["Model", *COLUMNS], rows, caption, name="ranking"), hidden_table(runs)]
