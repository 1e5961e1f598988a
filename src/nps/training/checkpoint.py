"""Checkpoints: folders of safetensors and JSON that are whole or not there.

    checkpoints/step-00001560/
        model.safetensors  best.safetensors  ema.safetensors  optimizer.safetensors
        state.json         step, sums since the epoch began, best score, length of the log;
                           the run it belongs to, and the seeds that were saved with it
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from nps.errors import UserError
from nps.files import delete_folder, os_errors_in_one_line, whole_folder, write_bytes
from nps.reading import Damaged as Damaged
from nps.reading import Unreadable as Unreadable
from nps.training import stored
from nps.training.config import SCHEMA
from nps.training.identity import Identity, changes, signature

NAME = re.compile(r"step-(\d{8,})")

Tensors = dict[str, Tensor]


class Foreign(UserError):
    """A checkpoint of another run."""


class Misfit(UserError):
    """Weights of another model."""


@dataclass
class Checkpoint:
    """One moment of a run: named groups of tensors, and numbers."""

    step: int
    tensors: dict[str, Tensors]
    state: dict[str, Any]
    run: Identity | None = None
    """The signature of its run; None in checkpoints from before runs had an identity."""
    stack: dict[str, str | None] = field(default_factory=dict)
    """The seeds that were saved together, each with the id of its run; empty for a single seed."""
    path: Path | None = None
    """The folder that it was read from."""

    def which(self, wanted: str) -> str:
        """The model that there is: before the first validation, the "best" is the "last".

        A model folder has only one of them."""
        if "best" not in self.tensors:
            return "last"
        return wanted if "model" in self.tensors else "best"

    def weights(self, wanted: str) -> Tensors:
        """The state dict to evaluate: of the "best" model, if there is one yet, or the "last"."""
        if self.which(wanted) == "best":
            return self.tensors["best"]
        return self.tensors["ema"] if "ema" in self.tensors else self.tensors["model"]


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write `folder/step-…`, then delete others until `keep` are left, the oldest first."""
    path = write(folder, checkpoint)
    prune(folder, checkpoint.step, keep)
    return path


def write(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `folder/step-…`, whole or not at all."""
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
    return path


def prune(folder: Path, written: int, keep: int) -> None:
    """Delete checkpoints until `keep` are left, the oldest first, never the one just written."""
    others = [step for step in steps(folder) if step != written]
    for step in others[: max(0, len(others) - (keep - 1))]:
        delete_folder(path_of(folder, step))


def _files(checkpoint: Checkpoint) -> list[tuple[str, bytes]]:
    files = []
    for group, tensors in checkpoint.tensors.items():
        contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        files.append((f"{group}.safetensors", safetensors.torch.save(contiguous)))
    state: dict[str, Any] = {"step": checkpoint.step, **checkpoint.state}
    if checkpoint.run is not None:
        state["run"] = checkpoint.run
    if checkpoint.stack:
        state["stack"] = checkpoint.stack
    return [*files, ("state.json", json.dumps(state).encode())]


def load(path: Path, owner: Identity | None = None) -> Checkpoint:
    """Read one checkpoint folder, checking every byte against its manifest.

    Args:
        path: `checkpoints/step-…` of a run.
        owner: the identity of that run. A checkpoint of another is refused; one that is older than
            identities is not.
    """
    tensors, state = stored.read(path)
    step, run, stack = state.pop("step"), state.pop("run", None), state.pop("stack", {})
    _require_owner(path, run, owner)
    return Checkpoint(step, tensors, state, run, stack, path)


def _require_owner(path: Path, run: Identity | None, owner: Identity | None) -> None:
    """Refuse a checkpoint that says that it is of another run."""
    if run is None or owner is None:
        return
    if found := changes(signature(run), signature(owner), ids=True):
        raise Foreign(f"{path}: a checkpoint of another run ({'; '.join(found)}); remove it")


def load_weights(model: nn.Module, saved: Tensors) -> None:
    """Give a model saved parameters and buffers, or say in one line why they do not fit.

    Another number of rules does not fit either: `load_state_dict` of a rule set would resize it.
    """
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    wrong = [
        f"size mismatch for {name}: got {tuple(saved[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in saved and saved[name].shape != tensor.shape
    ]
    if not wrong:
        try:
            model.load_state_dict(saved)
        except RuntimeError as error:
            wrong = [line.strip() for line in str(error).splitlines()[1:]] or [str(error)]
        except (ValueError, KeyError, TypeError) as error:  # the names of the rules are no text
            wrong = [f"its extra state is damaged ({error})"]
    if wrong:
        raise Misfit(wrong[0] + (f" and {len(wrong) - 1} more" if wrong[1:] else ""))


@dataclass(frozen=True)
class Found:
    """The newest whole checkpoint in a folder, if there is one, and why newer ones are not."""

    checkpoint: Checkpoint | None
    damaged: dict[Path, str]

    @property
    def warning(self) -> str:
        """A line that names the damaged ones and the one to use; empty if none is damaged."""
        used = self.checkpoint.path if self.checkpoint is not None else None
        instead = f"using {used.name} instead" if used is not None else "there is no other"
        return "; ".join([*self.damaged.values(), instead]) if self.damaged else ""


def find(folder: Path, owner: Identity | None = None) -> Found:
    """The newest whole checkpoint. Nothing is changed.

    Args:
        folder: `checkpoints/` of a run.
        owner: the identity of the run, if it has one.

    Raises:
        Foreign: the newest is one of another run.
        Unreadable: the newest may be whole but cannot be read, so older ones must not be used.
    """
    damaged: dict[Path, str] = {}
    for step in reversed(steps(folder)):
        path = path_of(folder, step)
        try:
            return Found(load(path, owner), damaged)
        except Damaged as error:
            damaged[path] = str(error)
    return Found(None, damaged)


def newest(folder: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """The newest whole checkpoint; damaged ones are reported and skipped."""
    found = find(folder)
    if found.warning:
        report(found.warning)
    return found.checkpoint


def set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint, out of the way of new ones."""
    aside, number = path.with_name(f"damaged-{path.name}"), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"damaged-{path.name}-{number}")
    with os_errors_in_one_line(f"cannot rename {path}"):
        path.rename(aside)
    return aside


def remove_after(folder: Path, step: int) -> None:
    """Delete the checkpoints after a step."""
    with os_errors_in_one_line(f"cannot delete a checkpoint in {folder}"):
        for later in (each for each in steps(folder) if each > step):
            shutil.rmtree(path_of(folder, later))


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
