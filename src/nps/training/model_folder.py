"""A model folder: a trained model without its training. Such models ship with nps, and go to a hub.

    config.json        as in the run folder
    card.json          what the model is, how it was trained and tested; sha256 of the files below
    model.safetensors  the weights
    provenance.json    as in the run folder, if there was one

It is read wherever a run folder is, by path. It has no checkpoints and cannot be trained on. Files
may come from anywhere: only JSON and safetensors are read, and nothing that the card does not list.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

import safetensors.torch

from nps.errors import UserError
from nps.files import write_bytes
from nps.reading import Damaged, exists, parse_json, read_bytes
from nps.training import stored
from nps.training.checkpoint import Checkpoint, Tensors, steps
from nps.training.config import SCHEMA
from nps.training.identity import Identity
from nps.training.stored import File

CARD, CONFIG, MODEL, PROVENANCE = "card.json", "config.json", "model.safetensors", "provenance.json"
README = "README.md"
FLOORS = ("Floor", "Copy the input")
"""Columns of a card's numbers with the score of a model that has learned nothing."""


class Trained(TypedDict):
    """How a model was trained."""

    command: str
    """It trains the model again; without paths of the machine that it was trained on."""
    commit: str | None
    device: str
    seconds: float | None
    """Wall time; None if it is not known."""
    sessions: int


class Card(TypedDict):
    """card.json"""

    schema: int
    about: str
    which: Literal["best", "last"]
    step: int
    """The step that the weights are from."""
    files: dict[str, File]
    data: str
    licence: str | None
    trained: Trained
    changed: dict[str, list[Any]]
    """Config fields that are not the preset's: their value, and the preset's."""
    test: dict[str, Any]
    """Metrics on the test set; empty if it was not tested."""
    verdict: str
    columns: list[str]
    numbers: list[list[str]]
    """The metrics that matter most, as `nps eval` shows them: a row for each, with its name, its
    value and its floor."""
    note: str


def is_model_folder(folder: Path) -> bool:
    return exists(folder / CARD) and not steps(folder / "checkpoints")


def read_card(folder: Path) -> Card:
    """card.json, checked."""
    return parse_card(read_bytes(folder / CARD), folder / CARD)


def parse_card(data: bytes, path: Path | str) -> Card:
    """A card from bytes, checked; `path` names it in errors."""
    saved: dict[str, Any] = parse_json(data, str(path), dict[str, Any], finite=False)
    version = saved.get("schema")
    if isinstance(version, int) and version > SCHEMA:
        raise UserError(f"{path}: schema {version}, this nps reads up to {SCHEMA}: update nps")
    card: Card = parse_json(data, str(path), Card, finite=False)
    for name in card["files"]:
        if Path(name).name != name or name in (CARD, CONFIG, PROVENANCE, README):
            raise Damaged(f"{path}: damaged, it lists {name!r}")
    columns, pairs = card["columns"], card["changed"].values()
    table = len(columns) >= 2 and all(len(row) == len(columns) for row in card["numbers"])
    if not table or any(len(pair) != 2 for pair in pairs):
        raise Damaged(f"{path}: damaged, its numbers are not a table")
    if MODEL not in card["files"] or card["step"] < 0:
        raise Damaged(f"{path}: damaged, it lists no {MODEL}, or a step below zero")
    return card


def main_number(card: Card) -> str:
    """The first metric, by name; empty if there is none."""
    if not card["numbers"]:
        return ""
    (first, second, *_), (name, value, *_) = card["columns"], card["numbers"][0]
    if first:  # the rows are numbers of steps
        return f"{second} after {name} step{'s' * (name != '1')} {value}"
    return f"{name} {value}"


def main_floor(card: Card) -> str:
    """The floor of the first metric: the score of a model that has learned nothing."""
    for column in FLOORS:
        if card["numbers"] and column in card["columns"]:
            return card["numbers"][0][card["columns"].index(column)]
    return "–"


def load(folder: Path) -> Checkpoint:
    """The weights, if they are those that the card lists."""
    card = read_card(folder)
    data = stored.checked(folder, MODEL, card["files"][MODEL])
    group = "best" if card["which"] == "best" else "model"
    tensors = {group: stored.tensors_of(folder, MODEL, data)}
    return Checkpoint(card["step"], tensors, {"best_step": card["step"]}, path=folder)


def write(
    folder: Path,
    saved: Identity,
    provenance: list[dict[str, Any]],
    card: Card,
    weights: Tensors,
    more: Mapping[str, bytes] | None = None,
) -> None:
    """Write a model into a folder.

    Args:
        folder: an empty folder.
        saved: the content of config.json.
        provenance: the sessions that trained the model.
        card: what is known of it; `files` is filled in here.
        weights: its state dict.
        more: other files that belong to it, such as recorded episodes.
    """
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    files = {MODEL: safetensors.torch.save(contiguous), **(more or {})}
    listed = {name: file_of(data) for name, data in files.items()}
    documents: dict[str, Any] = {CONFIG: saved, CARD: {**card, "files": listed}}
    if provenance:
        documents[PROVENANCE] = provenance
    for name, document in documents.items():
        files[name] = (json.dumps(document, indent=2) + "\n").encode()
    for name, data in files.items():
        write_bytes(folder / name, data)


def file_of(data: bytes) -> File:
    """Size and sha256."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
