"""Which file the metrics of a test go to, and whether test.json is about the model it should be.

Tables are made from test.json, so one model alone writes it: the best on validation, of the newest
checkpoint. Every other test has a file of its own, `test[-step-<step>][-last][-on-<name>].json`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nps.errors import UserError
from nps.reading import read_json
from nps.training import checkpoint
from nps.training.checkpoint import Checkpoint
from nps.training.run import Run


def metrics_path(run: Run, tested: Checkpoint, which: str, on: str | None = None) -> Path:
    """The file for the metrics of a test.

    Args:
        run: the run of the model.
        tested: the checkpoint of the model.
        which: the "best" model in the checkpoint, or the "last".
        on: the name of another test set than the run's own.
    """
    parts = ["test"]
    if checkpoint.steps(run.checkpoints)[-1:] not in ([], [tested.step]):
        parts.append(checkpoint.path_of(Path(), tested.step).name)
    if which != "best":
        parts.append(which)
    if on is not None:
        parts.append(f"on-{Path(on).stem}")
    path, number = run.folder / f"{'-'.join(parts)}.json", 1
    while on is not None and not _is_about(path, on):
        number += 1
        path = run.folder / f"{'-'.join(parts)}-{number}.json"
    return path


def _is_about(path: Path, on: str) -> bool:
    """Whether a file of metrics may be replaced by those of this test set."""
    if not os.path.lexists(path):
        return True
    try:
        saved = read_json(path, dict[str, Any], finite=False)
    except UserError:
        return False
    if "on_path" in saved:
        return bool(saved["on_path"] == os.path.abspath(on))
    return bool(saved.get("on", on) == on)


def mismatch(run: Run, test: dict[str, Any]) -> str:
    """What is wrong if test.json is about another model than the one that tables show; or "".

    Files from before `which` and `step` were recorded are taken as they are.
    """
    which, step = test.get("which", "best"), test.get("step")
    path, again = run.folder / "test.json", f"test it again: nps eval {run.folder}"
    if which != "best":
        return f"{path}: of the {which} model, expected the best on validation; {again}"
    newest = _newest_step(run)
    if None not in (step, newest) and step != newest:
        return f"{path}: of step {step}, expected step {newest}, the newest of the run; {again}"
    return ""


def _newest_step(run: Run) -> int | None:
    """The step of the newest checkpoint; where checkpoints were left behind, of the metric log."""
    found = checkpoint.steps(run.checkpoints)
    if found:
        return found[-1]
    rows = run.metrics()
    return rows[-1].get("step") if rows else None
