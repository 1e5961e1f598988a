"""Where a model comes from, as far as it matters beside another: run, edits, training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nps.errors import UserError
from nps.experiments.edit_record import Record, read_record
from nps.inspect.counterfactual import in_words
from nps.inspect.edits import Edits
from nps.training.run import run_at
from nps.zoo.readme import budget


def of(run: Any) -> str | None:
    """The id of the training: a model and its edits share it, and so their rules one by one."""
    if run.folder is None:
        return None
    found: str | None = run_at(run.folder).read().get("id")
    return found


def record_of(run: Any) -> Record | None:
    """Its record of edits; None if there is none, or a damaged one: no reason not to show it."""
    try:
        return None if run.folder is None else read_record(run.folder)
    except UserError:
        return None


def edited(run: Any, rule_names: Sequence[str]) -> str | None:
    """What was changed in it by hand, in words; None if nothing was."""
    record = record_of(run)
    if record is None:
        return None
    try:
        return in_words(Edits.from_json(record["edits"]), rule_names)
    except UserError:  # of a later version
        return "edited in a way that this nps does not know"


def training(run: Any) -> str | None:
    """A training with fewer epochs than its preset has, and why, where its card says so."""
    card = getattr(run, "card", None)
    ours, preset = ({} if card is None else card["changed"]).get("epochs", (0, 0))
    if card is None or ours >= preset:
        return None
    note = card["note"].rstrip(".")
    return f"{budget(card)}. {note}" if note else f"a short training, {budget(card)}"
