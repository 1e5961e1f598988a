"""Checkpoints: folders of safetensors and JSON that are whole or not there.

    checkpoints/step-00001560/
        model.safetensors  best.safetensors  optimizer.safetensors  rng.safetensors
        state.json         numbers: step, sums since the epoch began, best score, log position
        manifest.json      size and sha256 of each of the others

The best model so far travels inside each checkpoint, so "last" and "best" are always of one moment.
A reader believes nothing without a manifest that holds.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from nps.errors import UserError
from nps.files import read_json, told_in_one_line, whole_folder, write_bytes
from nps.training.config import SCHEMA

NAME = re.compile(r"step-(\d{8,})")

Tensors = dict[str, Tensor]


@dataclass
class Checkpoint:
    """One moment of a run: named groups of tensors, and plain numbers."""

    step: int
    tensors: dict[str, Tensors]
    state: dict[str, Any]


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write `folder/step-…`, then delete all but the newest `keep`."""
    path = folder / f"step-{checkpoint.step:08d}"
    found = steps(folder)
    before = f"{path_of(folder, found[-1]).name} is whole" if found else "none was written before"
    with told_in_one_line(f"cannot write {path} (the checkpoint before: {before})"):
        if path.exists():  # the same moment, saved again after a resume
            shutil.rmtree(path)
        with whole_folder(path) as temporary:
            manifest: dict[str, Any] = {"schema": SCHEMA, "files": {}}
            for name, data in _files(checkpoint):
                write_bytes(temporary / name, data)
                digest = hashlib.sha256(data).hexdigest()
                manifest["files"][name] = {"bytes": len(data), "sha256": digest}
            write_bytes(temporary / "manifest.json", json.dumps(manifest, indent=2).encode())
    for step in steps(folder)[:-keep]:
        shutil.rmtree(path_of(folder, step), ignore_errors=True)
    return path


def _files(checkpoint: Checkpoint) -> list[tuple[str, bytes]]:
    files = []
    for group, tensors in checkpoint.tensors.items():
        contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        files.append((f"{group}.safetensors", safetensors.torch.save(contiguous)))
    state = {"step": checkpoint.step, **checkpoint.state}
    return [*files, ("state.json", json.dumps(state).encode())]


def load(path: Path) -> Checkpoint:
    """Read one checkpoint folder, checking every byte against its manifest."""
    manifest = read_json(path / "manifest.json")
    if not isinstance(manifest, dict) or "files" not in manifest:
        raise UserError(f"{path}: damaged, manifest.json lists no files")
    if manifest.get("schema", 0) > SCHEMA:
        raise UserError(
            f"{path}: schema {manifest['schema']}, this nps reads up to {SCHEMA}: update nps"
        )
    tensors: dict[str, Tensors] = {}
    state: dict[str, Any] = {}
    for name, expected in manifest["files"].items():
        try:
            data = (path / name).read_bytes()
        except OSError as error:
            raise UserError(f"{path}: damaged, {name}: {error.strerror}") from None
        if len(data) != expected["bytes"]:
            raise UserError(
                f"{path}: damaged, {name} has {len(data)} bytes, expected {expected['bytes']}"
            )
        if hashlib.sha256(data).hexdigest() != expected["sha256"]:
            raise UserError(f"{path}: damaged, the sha256 of {name} differs")
        if name == "state.json":
            state = json.loads(data)
        else:
            tensors[name.removesuffix(".safetensors")] = safetensors.torch.load(data)
    return Checkpoint(state.pop("step"), tensors, state)


def newest(folder: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole. Damaged ones are reported and passed over."""
    damaged = False
    for step in reversed(steps(folder)):
        try:
            checkpoint = load(path_of(folder, step))
        except UserError as error:
            report(f"{error}; looking for the one before")
            damaged = True
            continue
        if damaged:
            report(f"using {path_of(folder, step)}")
        return checkpoint
    return None


def steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    matches = (NAME.fullmatch(entry.name) for entry in folder.iterdir())
    return sorted(int(match.group(1)) for match in matches if match)


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"
