"""The law of stacked seeds, for any experiment: each comes out as the single run with its seed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nps.training import checkpoint
from nps.training.loop import Settings, train
from nps.training.run import Run

CPU = torch.device("cpu")


def assert_stack_equals_single(
    folder: Path,
    task: Any,
    judged: str,
    *,
    seeds: Sequence[int] = (0, 3),
    groups: Sequence[str] = ("model", "best"),
    rtol: float = 1e-3,
    atol: float = 1e-4,
) -> dict[int, Run]:
    """Weights, logged losses and what validation says of `judged`; the stack's runs."""
    stacked = {s: Run(folder / f"stack/seed-{s}") for s in seeds}
    alone = {s: Run(folder / f"alone-{s}") for s in seeds}
    for runs in (stacked, *({s: run} for s, run in alone.items())):
        for run in runs.values():
            run.folder.mkdir(parents=True)
        train(task, task.config, runs, CPU, Settings(), lambda text: None)
    for s in seeds:
        ours, theirs = (checkpoint.newest(r.checkpoints, print) for r in (stacked[s], alone[s]))
        for group in groups:
            for key, tensor in theirs.tensors[group].items():
                found = ours.tensors[group][key]
                torch.testing.assert_close(
                    found, tensor, rtol=rtol, atol=atol, msg=f"{group} {key}"
                )
        for row, other in zip(stacked[s].metrics(), alone[s].metrics(), strict=True):
            assert row["loss"] == pytest.approx(other["loss"], rel=1e-4)
            said, known = (of["validation"][judged] for of in (row, other))
            assert said == pytest.approx(known, rel=rtol)
    return stacked
