"""Ablations of `blocks-best`: the preset, and the preset without each of its parts.

    python benchmarks/blocks_best.py runs/search.jsonl
    python benchmarks/blocks_best.py runs/search-cpu.jsonl RUN RUN ...

Five seeds of each variant, trained together, or finished runs instead; measured on the validation
episodes only, never on the test set. One JSON line each, with a number for each seed.
docs/notes/pushes.md has the table.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nps.experiments import load_task
from nps.experiments.blocks import PRESETS, BlocksTask
from nps.models.world_model import WorldModel
from nps.training import checkpoint, provenance
from nps.training.config import differences, to_json
from nps.training.loop import Settings, train
from nps.training.run import Run

VARIANTS: dict[str, dict[str, Any]] = {
    "blocks-best": {},
    "maps as they are": {"maps": "sigmoid"},
    "contexts from the beginning": {"context_from": 0.0},
    "maps as they are, contexts from the beginning": {"maps": "sigmoid", "context_from": 0.0},
    "linear selection": {"selection": "linear"},
    "rules with one hidden layer": {"rule_layers": 1},
    "rules with three hidden layers": {"rule_layers": 3},
    "no dropout of contexts": {"context_dropout": 0.0},
    "contexts learn from slots": {"context_gradient": "slot"},
    "null rule without handicap": {"null_handicap": 0.0},
    "factored actions, no numbers": {"action": "factored"},
    "copied actions, per-slot selection": {"action": "copied", "selection": "per-slot"},
    "a slot may be its own context": {"self_context": True},
    "one rule": {"rules": 1},
    "sequential, 2 stages": {"transition": "snps", "stages": 2},
}
SHOWN = ("moves_free", "moves_push", "moves_no_op", "push_moved", "push_context", "h1_10")
EPISODES = {"validation_episodes": 1_000, "test_episodes": 100}
"""More validation episodes, which are measured, and few test episodes, which are not used."""


def measure(
    name: str, seeds: int, device: torch.device, settings: Settings, changes: dict[str, Any]
) -> dict[str, Any]:
    config = replace(PRESETS["blocks-best"].config, **{**EPISODES, **VARIANTS[name], **changes})
    task = BlocksTask(config, device)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        runs = {seed: Run(Path(folder) / f"seed-{seed}") for seed in range(seeds)}
        for run in runs.values():
            run.folder.mkdir()
        train(task, config, runs, device, settings, lambda text: None)
        seconds = time.perf_counter() - began
        rows = []
        for seed, run in runs.items():
            found = checkpoint.newest(run.checkpoints, print)
            assert found is not None
            model = task.make_model(seed)
            model.load_state_dict(found.weights("best"))
            rows.append(validated(task, model.eval(), run))
    return in_one(rows, variant=name, changes=VARIANTS[name], seconds=round(seconds, 1))


def measure_run(folder: str) -> dict[str, Any]:
    """A finished run, as `nps train blocks-best` with any flags leaves it."""
    run = Run(folder)
    task, model = load_task(folder)
    changes = differences(to_json(PRESETS["blocks-best"].config), run.read()["config"])
    seconds = sum(session["wall_seconds"] for session in run.provenance())
    row = validated(task, model, run)
    return in_one([row], variant=folder, changes=changes, seconds=round(seconds, 1))


@torch.no_grad()
def validated(task: Any, model: WorldModel, run: Run) -> dict[str, Any]:
    """One seed's best model by validation loss, as `nps eval` would take it."""
    validations = [row["validation"] for row in run.metrics() if "validation" in row]
    judged = min(validations, key=lambda row: row["score"])
    pushes = task.pushes(model, "validation")
    numbers = {**task.moves(model, "validation"), **judged, **pushes}
    parameters = sum(p.numel() for p in model.transition.parameters())
    return {key: numbers.get(key) for key in (*SHOWN, "loss")} | {"parameters": parameters}


def in_one(rows: list[dict[str, Any]], **about: Any) -> dict[str, Any]:
    return {**about, **{key: [row[key] for row in rows] for key in rows[0]}}


def main(path: str, *words: str) -> None:
    """`seeds=2 epochs=1 train_episodes=20` and the like shorten it; other words are runs."""
    changes = {key: int(value) for key, _, value in (w.partition("=") for w in words) if value}
    seeds = changes.pop("seeds", 5)
    folders = [word for word in words if "=" not in word]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # On a GPU tf32: exact products take twice as long here.
    settings = Settings(precision="tf32" if device.type == "cuda" else "float32")
    with Path(path).open("w") as file:
        file.write(json.dumps(provenance.describe(device)) + "\n")
        for name in folders or VARIANTS:
            row = measure_run(name) if folders else measure(name, seeds, device, settings, changes)
            file.write(json.dumps(row) + "\n")
            file.flush()
            shown = [f"{key} {[round(100 * x, 1) for x in row[key]]}" for key in SHOWN]
            print(name, *shown, row["parameters"][0], f"{row['seconds']} s", sep=", ", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
