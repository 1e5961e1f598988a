"""What the commands share: help from docstrings, the leading argument, common flags."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from nps.errors import UserError
from nps.flag_help import Flag, help_text
from nps.flags import require_short_names

Device = Literal["cpu", "cuda"]
Precision = Literal["float32", "tf32", "bf16"]
"""As in nps.training.precision, which would import torch."""
DataFolder = Annotated[
    Path | None,
    tyro.conf.arg(
        help="Folder that holds the data files (default: NPS_DATA, then the cache, then the web); "
        "for a model of your own episodes, their file or folder."
    ),
]
"""A flag of every command that may read data; handled by `own_data`."""

OtherTestSet = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="MODE|PATH",
        help="Test set to use: a blocks mode, or a path to recorded episodes.",
    ),
]
"""A flag of commands that test; handled by `experiments.with_test_set`."""


def quiet(text: str) -> None:
    """Report nothing: for every process but the first."""


def positional(
    command: Callable[..., None],
    what: str,
    args: Sequence[str],
    flags: Callable[[], Iterable[Flag]],
    note: str = "",
) -> tuple[str, Sequence[str]]:
    """Split off the leading argument of a command; `--help` alone prints the general help.

    Args:
        command: its docstring is the help, and has examples.
        what: the leading argument.
        args: all arguments.
        flags: the flags that do not depend on the leading argument.
        note: where the others are shown, if there are more.
    """
    lines = map(str.strip, _doc(command).splitlines())
    example = next(line for line in lines if line.startswith("nps "))
    name = " ".join(example.split()[:2])
    if args and not args[0].strip():
        raise UserError(f"{name}: got an empty {what}, expected e.g. {example}")
    if args and not args[0].startswith("-"):
        require_short_names(f"{name} {what}", args[0])
        return args[0], args[1:]
    if args and args[0] in ("-h", "--help"):
        text = "\n\n".join(filter(None, (about(command), note)))
        print(help_text(f"{name} {what}", text, list(flags())))
        sys.exit(0)
    raise UserError(f"{name}: expected {what} first, e.g. {example}")


def about(function: Callable[..., None], first: str = "") -> str:
    """The help text of a command: its docstring, after a first line if one is given."""
    text = _doc(function)
    return f"{first}\n\n{text}" if first else text


def _doc(function: Callable[..., None]) -> str:
    return inspect.cleandoc(function.__doc__ or "")


def field(help_text: str, *default: Any) -> Any:
    """A dataclass field with its line of help; required if no default is given."""
    value = default[0] if default else dataclasses.MISSING
    return dataclasses.field(default=value, metadata={"help": help_text})


def find_device(name: str) -> Any:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device here")
    return torch.device(name)


def use_data(folder: Path | None) -> None:
    """Search this folder for data first, here and in all child processes.

    Where data lie does not identify a run, so the folder is passed on in the environment and not in
    the config.
    """
    if folder is not None:
        folder = folder.expanduser().absolute()
        require(folder.is_dir(), f"--data: no such folder: {folder}")
        os.environ["NPS_DATA"] = str(folder)


def own_data(experiment: Any, path: Path | None) -> dict[str, str]:
    """The config field that --data sets, for experiments on the user's own files.

    For the others --data is a folder to search first, and no field changes.
    """
    if path is not None and experiment.data_field is not None:
        from nps.experiments.given import own_files

        return {experiment.data_field: own_files(path, "--data")}
    require_exists(path)
    if experiment.data_field is None:
        use_data(path)
    return {}


def require_exists(path: Path | None) -> None:
    if str(path).startswith("minari:"):  # a name, which `own_data` turns into a path
        return
    exists = path is None or path.expanduser().exists()
    require(exists, f"--data: no such folder or file: {path}")


def require(holds: bool, message: str) -> None:
    if not holds:
        raise UserError(message)
