"""Run folders with made-up logs, for tests of what reads them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nps.experiments.results import Result


def session(first: int, last: int, seconds: float, seeds: int = 1) -> dict[str, Any]:
    where = {"device": "cpu", "torch": "2", "commit": "c", "precision": "tf32"}
    steps = {"from_step": first, "to_step": last}
    return {**steps, "wall_seconds": seconds, "seeds_in_stack": seeds, **where}


def write_run(
    folder: Path,
    experiment: str = "mnist",
    preset: str = "mnist",
    seed: int = 0,
    config: dict[str, Any] | None = None,
    test: dict[str, Any] | None = None,
    sessions: list[dict[str, Any]] | None = None,
    curve: list[dict[str, Any]] | None = None,
) -> Path:
    """The logs of a run in `folder`, without test.json if `test` is None."""
    folder.mkdir(parents=True)
    saved = {"schema": 1, "experiment": experiment, "preset": preset, "seed": seed}
    saved["config"] = config or {}
    (folder / "config.json").write_text(json.dumps(saved))
    if sessions is not None:
        (folder / "provenance.json").write_text(json.dumps(sessions))
    if test is not None:
        (folder / "test.json").write_text(json.dumps(test))
    if curve is not None:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in curve))
    return folder


def published(
    experiment: str,
    preset: str,
    tests: Sequence[dict[str, Any]],
    group: str = "",
    seconds: float = 1.0,
    **config: Any,
) -> list[Result]:
    """A published run for each seed's test metrics."""
    sessions = [session(0, 1, seconds)]
    names = (experiment, preset, preset)
    return [
        Result(*names, seed, config, test, sessions, Path(), group, published=True)
        for seed, test in enumerate(tests)
    ]
