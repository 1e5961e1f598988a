"""What outlives the page: names of rules, and edited models as runs of their own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from nps.errors import UserError
from nps.experiments import edited
from nps.inspect.edits import Edits
from nps.inspect.workbench import require_index
from nps.viewer.models import Shown
from nps.zoo import is_shipped

LONGEST_NAME = 60
MOST_NAMED = 1_000
"""Edited runs of one name, which get numbers."""
FOLDER = re.compile(r"\w[\w.-]{0,79}", re.ASCII)


def rename(model: Shown, rule: int, name: str) -> dict[str, Any]:
    """Give a rule another name, and keep it with the run."""
    _require_run(model, "its rules cannot be renamed")
    require_index("rule", rule, len(model.workbench.rule_names))
    name = name.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise UserError(f"name: expected 1 to {LONGEST_NAME} characters in one line")
    with model.lock:
        return {"rules": edited.rename(model.run, rule, name)}


def save(model: Shown, edits: Edits, name: str | None) -> dict[str, Any]:
    """Write a run with the lasting edits in its weights, beside the run that it came from."""
    _require_run(model, "it cannot be saved")
    if not edits.lasting:
        raise UserError("edits: expected a rule that is switched off, scaled or shifted")
    if name is not None and not FOLDER.fullmatch(name):
        raise UserError(f"name: got {name[:80]!r}, expected letters, digits, dots and dashes")
    with model.lock:
        out = _folder(Path(model.run.folder), name)
        edited.save_edited(model.run, edits.lasting, out)
    shown = os.path.relpath(out)
    return {"run": shown, "command": f"nps eval {shown}"}


def _require_run(model: Shown, what: str) -> None:
    if model.run.folder is None:
        raise UserError(f"this model is not of a run folder: {what}")


def _folder(run: Path, name: str | None) -> Path:
    """A folder that does not exist yet; of a model that ships, in runs/."""
    parent = Path("runs") if is_shipped(run) else run.absolute().parent
    whose = run.name
    if re.fullmatch(r"seed-\d+", whose):  # one of several seeds: beside the folder of all
        parent, whose = parent.parent, f"{parent.name}-{whose}"
    if name is not None:
        if (out := parent / name).exists():
            raise UserError(f"name: {os.path.relpath(out)} exists already")
        return out
    names = (f"{whose}-edited{'' if n == 1 else f'-{n}'}" for n in range(1, MOST_NAMED))
    return next(parent / each for each in names if not (parent / each).exists())
