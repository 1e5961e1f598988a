"""The files of a checkpoint, read and compared with its manifest.

A checkpoint is untrusted data, like every file of a run: if a name, size, type or digest does not
match, it is damaged.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from nps import schema
from nps.reading import Damaged, Unreadable, parse_json, read_bytes
from nps.training.config import SCHEMA


class File(TypedDict):
    bytes: int
    sha256: str


class Manifest(TypedDict):
    """manifest.json"""

    schema: int
    files: dict[str, File]


class Owner(TypedDict):
    """The run that a checkpoint belongs to."""

    id: NotRequired[str]
    experiment: str
    seed: int
    config: dict[str, Any]


class Moment(TypedDict):
    """state.json"""

    step: int
    sums: NotRequired[dict[str, float]]
    best_score: NotRequired[float | None]
    best_step: NotRequired[int]
    log_length: NotRequired[int]
    run: NotRequired[Owner]
    stack: NotRequired[dict[str, str | None]]


def read(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The tensors of a checkpoint folder by group and name, and its state.json."""
    require_folder(path)
    files = {name: checked(path, name, file) for name, file in _manifest(path).items()}
    if "model.safetensors" not in files or "state.json" not in files:
        raise Damaged(f"{path}: damaged, it has no model or no state")
    where = str(path / "state.json")
    state: dict[str, Any] = parse_json(files.pop("state.json"), where, Moment, finite=False)
    if path.name != f"step-{state['step']:08d}" or state.get("log_length", 0) < 0:
        raise Damaged(f"{path}: damaged, state.json has another step, or a length below zero")
    tensors = {
        name.removesuffix(".safetensors"): tensors_of(path, name, files[name]) for name in files
    }
    return tensors, state


def require_folder(path: Path) -> None:
    """Refuse a link: the checkpoint behind it would never be deleted, or might change."""
    if os.path.islink(path):  # False where it cannot be known; reading then says why
        raise Unreadable(f"{path}: a symbolic link, expected the folder itself")


def _manifest(path: Path) -> dict[str, File]:
    """The files of a checkpoint, each with its size and sha256."""
    where = path / "manifest.json"
    manifest = parse_json(read_bytes(where, links=False), str(where), dict[str, Any])
    version = manifest.get("schema", 0)
    if isinstance(version, int) and version > SCHEMA:
        raise Unreadable(f"{path}: schema {version}, this nps reads up to {SCHEMA}: update nps")
    if (what := schema.problem(manifest, Manifest)) is not None:
        raise Damaged(f"{where}: damaged, {what}")
    files: dict[str, File] = manifest["files"]
    for name in files:
        if Path(name).name != name:
            raise Damaged(f"{where}: damaged, it lists {name!r}")
    return files


def checked(path: Path, name: str, expected: File) -> bytes:
    """The content of one file, if it is the one that the manifest lists."""
    size = expected["bytes"]
    data = read_bytes(path / name, most=max(0, size), links=False)
    if len(data) != size:
        raise Damaged(f"{path}: damaged, {name} has {len(data)} bytes, expected {size}")
    if hashlib.sha256(data).hexdigest() != expected["sha256"]:
        raise Damaged(f"{path}: damaged, the sha256 of {name} differs")
    return data


def tensors_of(path: Path, name: str, data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, KeyError, ValueError, RuntimeError, OverflowError) as error:
        why = str(error).removeprefix("Error while deserializing: ")
        raise Damaged(f"{path}: damaged, {name} is not safetensors ({why})") from None
