"""What the commands share: help from docstrings, the leading argument, one-line errors."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from nps.errors import UserError

Device = Literal["cpu", "cuda"]
Precision = Literal["float32", "tf32", "bf16"]
"""As in nps.training.precision, which needs torch."""
DataFolder = Annotated[
    Path | None,
    tyro.conf.arg(
        help="Folder that holds the data files (else NPS_DATA, the cache, the web); for a model of "
        "your own episodes, their file or folder."
    ),
]
"""An option of every command that may read data; passed to `own_data`."""

Elsewhere = Annotated[
    str | None,
    tyro.conf.arg(
        help="Take another test set: of blocks a mode, of your own episodes another file or "
        "folder, all of it."
    ),
]
"""An option of commands that test; passed to `experiments.elsewhere`."""


def quiet(text: str) -> None:
    """Say nothing: what every process but the first does."""


def positional(
    command: Callable[..., None], what: str, args: Sequence[str]
) -> tuple[str, Sequence[str]]:
    """The leading argument of a command; its --help needs none."""
    example = next(line.strip() for line in _doc(command) if line.strip().startswith("nps "))
    name = " ".join(example.split()[:2])
    if args and not args[0].startswith("-"):
        return args[0], args[1:]
    if args and args[0] in ("-h", "--help"):
        print(f"{name} {what} [flags]\n\n{about(command)}\n")
        print(f"All flags: {name} {what} --help")
        sys.exit(0)
    raise UserError(f"{name}: expected {what} first, e.g. {example}")


def about(function: Callable[..., None], first: str = "") -> str:
    lines = [line[4:] if line.startswith("    ") else line for line in _doc(function)]
    text = "\n".join(lines).strip()
    return f"{first}\n\n{text}" if first else text


def _doc(function: Callable[..., None]) -> list[str]:
    return (function.__doc__ or "").splitlines()


def field(help_text: str, *default: Any) -> Any:
    """A dataclass field with its line of help, required without a default."""
    value = default[0] if default else dataclasses.MISSING
    return dataclasses.field(default=value, metadata={"help": help_text})


def find_device(name: str) -> Any:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device here")
    return torch.device(name)


def use_data(folder: Path | None) -> None:
    """Where to look for data first, here and in every process begun from here.

    A place is no part of what a run is, so it travels in the environment and not in the config.
    """
    if folder is not None:
        folder = folder.expanduser().absolute()
        require(folder.is_dir(), f"--data: no such folder: {folder}")
        os.environ["NPS_DATA"] = str(folder)


def own_data(experiment: Any, path: Path | None) -> dict[str, str]:
    """What --data changes in the configs of an experiment on the user's own files.

    For others it is a place to look in first, and changes nothing.
    """
    require_there(path)
    if experiment.data_field is None:
        use_data(path)
        return {}
    return {} if path is None else {experiment.data_field: str(path.expanduser().absolute())}


def require_there(path: Path | None) -> None:
    there = path is None or path.expanduser().exists()
    require(there, f"--data: no such folder or file: {path}")


def require(holds: bool, message: str) -> None:
    if not holds:
        raise UserError(message)
