"""`nps eval RUN`: test a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nps.commands.shared import (
    DataFolder,
    Device,
    OtherTestSet,
    about,
    find_device,
    own_data,
    positional,
    require_exists,
)
from nps.flags import parse


@dataclass(frozen=True)
class EvalArgs:
    device: Device = "cpu"
    """cpu or cuda."""
    which: Literal["best", "last"] = "best"
    """The model with the best validation score, or the last one."""
    data: DataFolder = None
    on: OtherTestSet = None


def evaluate(args: Sequence[str]) -> None:
    """Test a trained model. All settings are read from its run folder.

    The best model on validation of the newest checkpoint goes to RUN/test.json, from which tables
    are made; other checkpoints, models and test sets get files of their own.

    Examples:
      nps eval runs/sharp
      nps eval runs/sharp/checkpoints/step-00046800 --which last
      nps eval runs/blocks --on unobserved-zero-shot-shape
      nps eval runs/mine --on other.h5
    """
    from nps import experiments

    name, rest = positional(evaluate, "RUN", args)
    options = parse(EvalArgs, rest, prog="nps eval RUN", about=about(evaluate))
    require_exists(options.data)
    given = own_data(experiments.experiment_of(name), options.data)
    find_device(options.device)
    metrics = experiments.evaluate(Path(name), options.device, options.which, given, options.on)
    print("\n".join(_lines(metrics)))
    for rule in metrics.get("rules", []):
        fit = f"   (R² {rule['r2']:.3f})" if rule["r2"] is not None else ""
        print(f"rule {rule['rule']}: {rule['says']}{fit}")


def _lines(metrics: dict[str, Any]) -> list[str]:
    """One metric per line; those of several horizons (h1_1, h1_5, ...) side by side."""
    numbers = {key: f"{value:.6g}" for key, value in metrics.items() if isinstance(value, float)}
    if "rollouts" in metrics:
        numbers["rollouts"] = str(metrics["rollouts"])
    cells: dict[str, dict[str, str]] = {}
    for key, value in numbers.items():
        name, _, step = key.rpartition("_")
        name, step = (name, step) if step.isdigit() else (key, "")
        cells.setdefault(name, {})[step] = value
    steps = list(dict.fromkeys(step for row in cells.values() for step in row if step))
    width = max(map(len, cells), default=0)
    head = " ".join([f"{'steps':{width}}", *(f"{step:>9}" for step in steps)])
    rows = [
        f"{name:{width}} {row['']}"
        if "" in row
        else " ".join([f"{name:{width}}", *(f"{row.get(step, ''):>9}" for step in steps)])
        for name, row in cells.items()
    ]
    return [head, *rows] if steps else rows
