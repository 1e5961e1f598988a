"""A trained run as a model folder: its weights, and a card that says what they are.

The card repeats the numbers of `nps eval` and how the model was trained, without any path of the
machine that trained it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import torch

from nps.errors import UserError
from nps.experiments import config_of, find_experiment, rule_names
from nps.experiments.results import Result, read_run
from nps.files import whole_folder
from nps.reading import MAX_BYTES, exists, read_bytes
from nps.training import model_folder
from nps.training.checkpoint import Checkpoint
from nps.training.config import SCHEMA, TrainConfig, flag, to_json
from nps.training.identity import PLACES
from nps.training.model_folder import Card, Trained, is_model_folder, read_card
from nps.training.run import Run, find_checkpoint

DATA = {
    "mnist": "MNIST's digits, transformed by nps; `nps data mnist` downloads them",
    "atari": "random play in the Arcade Learning Environment; `nps data atari` records it",
    "stacks": "towers that fall in MuJoCo; `nps data stacks` makes them",
    "world-model": "recorded episodes",
}
MADE = "made by nps from the config"


class Tested(TypedDict):
    """The fields of a card that are about the test."""

    test: dict[str, Any]
    verdict: str
    columns: list[str]
    numbers: list[list[str]]


def export(
    source: Path,
    out: Path,
    *,
    licence: str | None = None,
    with_data: bool = False,
    note: str = "",
) -> Card:
    """Write a model folder, which must not exist yet.

    Args:
        source: a run folder, one of its checkpoints, or a model folder.
        out: the folder to write.
        licence: of the weights; of a model folder, its own by default.
        with_data: whether to add the file of recorded episodes that it was trained on.
        note: a sentence for the card.
    """
    if out.exists():
        raise UserError(f"{out}: exists already, expected a new folder")
    run, checkpoint = find_checkpoint(source)
    saved = run.read()
    weights = checkpoint.weights("best")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in weights.values()):
        raise UserError(f"{run.folder}: damaged, its model has weights that are not finite")
    card = card_of(run, checkpoint, licence)
    more = _files_beside(run)
    if note:
        card["note"] = note
    field = find_experiment(saved["experiment"]).data_field
    if with_data and field is not None:
        episodes = Path(saved["config"][field])
        if not episodes.is_file():
            raise UserError(f"{run.folder}: its data are {episodes}, expected one file")
        more[episodes.name] = read_bytes(episodes, most=2**30)
    saved["config"] = without_paths(saved["config"])
    sessions = [session | {"command": _command(saved)} for session in run.provenance()]
    with whole_folder(out) as folder:
        model_folder.write(folder, {"schema": SCHEMA, **saved}, sessions, card, weights, more)
    return card


def _files_beside(run: Run) -> dict[str, bytes]:
    """The other files of a model folder, and the names that were given to rules."""
    files = read_card(run.folder)["files"] if is_model_folder(run.folder) else {}
    sizes = {name: files[name]["bytes"] for name in files.keys() - {model_folder.MODEL}}
    if exists(run.folder / rule_names.FILE):  # it may have changed since
        sizes[rule_names.FILE] = MAX_BYTES
    return {name: read_bytes(run.folder / name, most=most) for name, most in sizes.items()}


def card_of(run: Run, checkpoint: Checkpoint, licence: str | None = None) -> Card:
    """The card of a run, or that of a model folder."""
    result = read_run(run.folder)
    if result.mismatch:
        raise UserError(result.mismatch)
    if is_model_folder(run.folder):
        card = read_card(run.folder)
        card = card if licence is None else {**card, "licence": licence}
        return card if card["test"] else {**card, **_tested(result)}
    saved, config = run.read(), config_of(run)
    experiment = find_experiment(result.experiment)
    preset = experiment.presets.get(result.preset)
    best = checkpoint.which("best") == "best"
    return {
        "schema": SCHEMA,
        "about": preset.about if preset is not None else experiment.about,
        "which": "best" if best else "last",
        "step": int(checkpoint.state["best_step"]) if best else checkpoint.step,
        "files": {},
        "data": DATA.get(experiment.name, MADE),
        "licence": licence,
        "trained": _trained(result, _command(saved)),
        "changed": _changed(config, preset.config) if preset is not None else {},
        "note": "",
        **_tested(result),
    }


def without_paths(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a config or test, with paths of this machine cut to their last part."""
    return {
        name: Path(value).name if name in PLACES and isinstance(value, str) else value
        for name, value in fields.items()
        if name != "on_path"
    }


def _command(saved: Mapping[str, Any]) -> str:
    """The command that trains such a model."""
    experiment = find_experiment(saved["experiment"])
    preset = experiment.presets.get(str(saved["preset"]))
    config = without_paths(saved["config"])
    usual = to_json(preset.config) if preset is not None else {}
    changed = {name: value for name, value in config.items() if value != usual.get(name)}
    own = changed.pop(experiment.data_field, "") if experiment.data_field is not None else ""
    flags = [flag(name, value) for name, value in changed.items()]
    words = ["nps train", str(saved["preset"]), f"--seed {saved['seed']}"]
    words += [f"--data {own}"] if own else []
    words += [f"--precision {saved['precision']}"] if saved["precision"] != "float32" else []
    return " ".join([*words, *flags])


def _trained(result: Result, command: str) -> Trained:
    last: Mapping[str, Any] = result.provenance[-1] if result.provenance else {}
    known = bool(result.provenance) and result.all_timed
    return {
        "command": command,
        "commit": last.get("commit"),
        "device": str(last.get("device", "")),
        "seconds": round(result.seconds, 1) if known else None,
        "sessions": len(result.provenance),
    }


def _changed(config: TrainConfig, preset: TrainConfig) -> dict[str, list[Any]]:
    ours, usual = to_json(config), to_json(preset)
    return {
        field.name: [ours[field.name], usual[field.name]]
        for field in dataclasses.fields(config)
        if ours[field.name] != usual[field.name] and field.name not in PLACES
    }


def _tested(result: Result) -> Tested:
    """The test of a run as a card has it: the table of the headline, or the main metrics."""
    experiment = find_experiment(result.experiment)
    if not result.tested:
        return {"test": {}, "verdict": "", "columns": ["", "Model"], "numbers": []}
    headline = experiment.headline(result.test, result.config)
    if headline is not None:
        verdict, columns = headline.verdict, list(headline.table.columns)
        rows = [list(map(str, row)) for row in headline.table.rows]
    else:
        numbers = {name: result.test.get(name) for name in experiment.main_metrics[:3]}
        rows = [[name, f"{x:.4g}"] for name, x in numbers.items() if isinstance(x, float)]
        verdict, columns = "", ["", "Model"]
    test = without_paths(result.test)
    return {"test": test, "verdict": verdict, "columns": columns, "numbers": rows}
