"""Checks of training options, shared by the commands and `nps.train`.

Errors name the flags of the commands; `nps.train` turns these into its own arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nps.errors import UserError
from nps.experiments.experiment import Experiment, Preset
from nps.experiments.start import finished_run

MOST_SEEDS = 10_000
"""Each is a run folder of its own."""


def require_options(
    out: Path | str,
    seeds: int,
    at_once: int | None,
    draw_every: int | None,
    save_every: float,
) -> None:
    require_seeds(seeds)
    for flag, value in {"--at-once": at_once, "--draw-every": draw_every}.items():
        if value is not None and value < 1:
            raise UserError(f"{flag}: got {value}, expected at least 1")
    if save_every < 0:
        raise UserError(f"--save-every: got {save_every}, expected 0 or more")
    require_out(out)


def require_seeds(count: int) -> None:
    if count < 1:
        raise UserError(f"--seeds: got {count}, expected at least 1")
    if count > MOST_SEEDS:
        raise UserError(f"--seeds: got {count}, expected at most {MOST_SEEDS}")


def require_out(path: Path | str) -> None:
    if not str(path).strip():
        raise UserError("--out: got an empty path, expected a folder")


def require_start(
    experiment: Experiment[Any, Any], preset: Preset, config: Any, seeds: Iterable[int], prog: str
) -> None:
    """Refuse a run that starts from others if these are not given, not there or not finished."""
    folder = getattr(config, "start_from", None)
    if folder is not None:
        for seed in seeds:
            finished_run(folder, seed, experiment.name)
    elif preset.starts_from is not None:
        raise UserError(f"{prog}: expected --start-from, a folder of {preset.starts_from} runs")
