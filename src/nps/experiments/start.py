"""Runs that start from a trained model: find the model of the same seed, and check that it fits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nps.errors import UserError
from nps.reading import exists
from nps.training.checkpoint import Tensors
from nps.training.run import Run, find_checkpoint


def best_of(
    folder: Path | str, seed: int, experiment: str, config: Any, fields: Iterable[str]
) -> Tensors:
    """The best model of the finished run `<folder>/seed-<seed>`.

    Args:
        folder: folder of runs, `seed-<s>`; or one run, used for every seed.
        seed: seed of the run that starts.
        experiment: the experiment that both runs must belong to.
        config: config of the run that starts.
        fields: config fields in which the two runs must agree.
    """
    run = finished_run(folder, seed, experiment)
    saved = run.read()
    for name in fields:
        theirs, ours = saved["config"].get(name), getattr(config, name)
        if theirs != ours:
            raise UserError(f"start_from: {run.folder} has {name} {theirs}, expected {ours}")
    return find_checkpoint(run.folder)[1].weights("best")


def finished_run(folder: Path | str, seed: int, experiment: str) -> Run:
    """The run to start from, refused if it is of another experiment or not trained to its end."""
    run = run_of(folder, seed)
    saved = run.read()
    if saved["experiment"] != experiment:
        got = saved["experiment"]
        raise UserError(f"start_from: {run.folder} is a run of {got}, expected {experiment}")
    if not run.complete(saved):
        raise UserError(f"start_from: {run.folder} is not trained to the end")
    return run


def run_of(folder: Path | str, seed: int) -> Run:
    """The run in the folder itself, or the run of this seed in it."""
    is_run = exists(Path(folder, "config.json"))
    return Run(Path(folder) if is_run else Path(folder) / f"seed-{seed}")
