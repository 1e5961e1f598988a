"""Checkpoints: folders of safetensors and JSON that are whole or not there.

    checkpoints/step-00001560/
        model.safetensors  best.safetensors  ema.safetensors  optimizer.safetensors
        state.json         step, sums since the epoch began, best score, length of the log
        manifest.json      size and sha256 of each of the others

The best model so far is part of each checkpoint, so that "last" and "best" always belong together;
`ema` is there if the run keeps a moving average. Nothing is used unless it matches the manifest.
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

from nps.files import delete_folder, os_errors_in_one_line, whole_folder, write_bytes
from nps.reading import Damaged as Damaged
from nps.reading import Unreadable as Unreadable
from nps.training import stored
from nps.training.config import SCHEMA

NAME = re.compile(r"step-(\d{8,})")

Tensors = dict[str, Tensor]


@dataclass
class Checkpoint:
    """One moment of a run: named groups of tensors, and numbers."""

    step: int
    tensors: dict[str, Tensors]
    state: dict[str, Any]

    def weights(self, which: str) -> Tensors:
        """The state dict to evaluate: of the "best" model, if there is one yet, or the "last"."""
        if which == "best" and "best" in self.tensors:
            return self.tensors["best"]
        return self.tensors["ema"] if "ema" in self.tensors else self.tensors["model"]


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write `folder/step-…`, then delete others until `keep` are left, the oldest first."""
    path = path_of(folder, checkpoint.step)
    found = steps(folder)
    before = f"{path_of(folder, found[-1]).name} is whole" if found else "none was written before"
    with os_errors_in_one_line(f"cannot write {path} (the checkpoint before: {before})"):
        if path.exists():  # the same moment, saved again after a resume
            shutil.rmtree(path)
        with whole_folder(path) as temporary:
            manifest: dict[str, Any] = {"schema": SCHEMA, "files": {}}
            for name, data in _files(checkpoint):
                write_bytes(temporary / name, data)
                digest = hashlib.sha256(data).hexdigest()
                manifest["files"][name] = {"bytes": len(data), "sha256": digest}
            write_bytes(temporary / "manifest.json", json.dumps(manifest, indent=2).encode())
    others = [step for step in steps(folder) if step != checkpoint.step]
    for step in others[: max(0, len(others) - (keep - 1))]:
        delete_folder(path_of(folder, step))
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
    tensors, state = stored.read(path)
    return Checkpoint(state.pop("step"), tensors, state)


def newest(
    folder: Path, report: Callable[[str], None], *, set_aside: bool = False
) -> Checkpoint | None:
    """The newest whole checkpoint. Damaged ones are reported and skipped.

    Args:
        folder: `checkpoints/` of a run.
        report: takes a line for each damaged checkpoint.
        set_aside: rename damaged ones to `damaged-step-…`, out of the way of new ones; for the
            process that writes here.

    Raises:
        Unreadable: the newest may be whole but cannot be read, so older ones must not be used.
    """
    damaged = False
    for step in reversed(steps(folder)):
        path = path_of(folder, step)
        try:
            checkpoint = load(path)
        except Damaged as error:
            kept = f", set aside as {_set_aside(path).name}" if set_aside else ""
            report(f"{error}{kept}; looking for the one before")
            damaged = True
            continue
        if damaged:
            report(f"using {path}")
        return checkpoint
    return None


def _set_aside(path: Path) -> Path:
    aside, number = path.with_name(f"damaged-{path.name}"), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"damaged-{path.name}-{number}")
    with os_errors_in_one_line(f"cannot rename {path}"):
        path.rename(aside)
    return aside


def remove_unfinished(folder: Path) -> None:
    """Delete what a process that was killed while saving left behind."""
    for path in folder.glob(".tmp-step-*"):
        delete_folder(path)


def steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in a folder, oldest first."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise Unreadable(f"{folder}: cannot read it: {error.strerror}") from None
    matches = (NAME.fullmatch(name) for name in names)
    return sorted(int(match.group(1)) for match in matches if match)


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"
