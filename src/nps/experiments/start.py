"""Runs that begin where others ended: the trained model of the same seed, found and checked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nps.errors import UserError
from nps.training.checkpoint import Tensors
from nps.training.run import Run, find_checkpoint


def best_of(
    folder: Path | str, seed: int, experiment: str, config: Any, fields: Iterable[str]
) -> Tensors:
    """The best model of the finished run `<folder>/seed-<seed>`.

    Args:
        folder: of runs, one a seed; or of one run, whatever its seed.
        seed: whose.
        experiment: what the run must be of.
        config: of the run that begins.
        fields: in which the two configs must agree.
    """
    run = run_of(folder, seed)
    saved = run.read()
    if saved["experiment"] != experiment:
        raise UserError(f"start_from: {run.folder} is a run of {saved['experiment']}")
    for name in fields:
        theirs, ours = saved["config"].get(name), getattr(config, name)
        if theirs != ours:
            raise UserError(f"start_from: {run.folder} has {name} {theirs}, expected {ours}")
    if not run.complete(saved):
        raise UserError(f"start_from: {run.folder} is not trained to its end")
    return find_checkpoint(run.folder)[1].weights("best")


def run_of(folder: Path | str, seed: int) -> Run:
    """The run in the folder itself, or the one of this seed below it."""
    one = Path(folder, "config.json").exists()
    return Run(Path(folder) if one else Path(folder) / f"seed-{seed}")
