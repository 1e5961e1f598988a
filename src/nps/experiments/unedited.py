"""The numbers of an edited model from before its edits, for `nps eval` to show beside its own.

They are those of the model that `edits.json` names, as its card or its test files have them, of the
same weights and the same test set. Nothing is tested again.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nps.errors import UserError
from nps.experiments.edit_record import Source, find_original, read_record
from nps.experiments.experiment import Experiment
from nps.experiments.export import card_of
from nps.experiments.headline import Headline, Metrics
from nps.experiments.tested import metrics_path
from nps.inspect.report import Table
from nps.reading import exists, read_json
from nps.training.model_folder import is_model_folder
from nps.training.run import find_checkpoint
from nps.zoo import is_shipped

COLUMN = "Before the edits"


@dataclass(frozen=True)
class Unedited:
    """Metrics from before the edits, or why there are none."""

    metrics: Metrics | None
    line: str
    """Where they are from; without metrics, why they are missing."""


def unedited(folder: Path, tested: Metrics) -> Unedited | None:
    """The numbers from before the edits; None of a model that was not edited.

    Args:
        folder: of the edited model.
        tested: what `nps eval` found for it: the same test set is looked for.
    """
    try:
        record = read_record(folder)
    except UserError as error:
        return Unedited(None, f"{COLUMN}: not shown; {error}")
    if record is None:
        return None
    source = record["of"]
    original = find_original(folder, record)
    if original is None:
        return Unedited(None, f"{COLUMN}: not shown, {source['folder']} is not found any more")
    name = original.name if is_shipped(original) else os.path.relpath(original)
    try:
        metrics = _stored(original, source, tested)
    except UserError as error:
        return Unedited(None, f"{COLUMN}: not shown; {error}")
    if metrics is None:
        return Unedited(None, f"{COLUMN}: not shown, {name} has no numbers of this test set stored")
    return Unedited(metrics, f"{COLUMN}: {name}.")


def _stored(original: Path, source: Source, tested: Metrics) -> Metrics | None:
    """The test that is stored with the original, of the weights that were edited."""
    run, checkpoint = find_checkpoint(original)
    which, on = source["which"], tested.get("on")
    if tested.get("changed_data"):
        return None
    if is_model_folder(original) and on is None:
        card = card_of(run, checkpoint)
        same = (card["which"], card["step"]) == (source["which"], source["step"])
        return card["test"] or None if same else None
    step = checkpoint.state["best_step"] if which == "best" else checkpoint.step
    path = metrics_path(run, checkpoint, which, on)
    if step != source["step"] or not exists(path):
        return None
    found: dict[str, Any] = read_json(path, dict[str, Any], finite=False)
    now = found.get("which", "best"), found.get("step", checkpoint.step)
    return found if now == (which, checkpoint.step) else None


def beside(
    headline: Headline | None, before: Unedited, experiment: Experiment[Any, Any], config: Any
) -> Headline | None:
    """The headline with a column of the numbers from before the edits."""
    if headline is None or before.metrics is None:
        return headline
    try:
        old = experiment.headline(before.metrics, config)
    except (LookupError, TypeError):  # metrics of another version
        return headline
    if old is None:
        return headline
    return dataclasses.replace(headline, table=with_column(headline.table, old.table))


def with_column(table: Table, before: Table) -> Table:
    """The values of another table of the same rows, after a table's own."""
    values: Mapping[str, str] = {row[0]: row[1] for row in before.rows}
    rows = [[*row[:2], values.get(row[0], "–"), *row[2:]] for row in table.rows]
    columns = [*table.columns[:2], COLUMN, *table.columns[2:]]
    return dataclasses.replace(table, columns=columns, rows=rows)
