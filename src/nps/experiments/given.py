"""Arguments that `nps.train` and `nps.load` share: the device, and the path of the data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from nps.errors import UserError
from nps.experiments.experiment import Experiment


def find_device(device: torch.device | str) -> torch.device:
    """The torch device; an error if it is not available."""
    try:
        found = torch.device(device)
    except RuntimeError:
        raise UserError(f"device: got {device!r}, expected cpu or cuda") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UserError("device: got cuda, but torch sees no CUDA device here")
    return found


@contextmanager
def data_given(
    experiment: Experiment[Any, Any], path: Path | str | None
) -> Iterator[dict[str, str]]:
    """Use the data at this path inside; yields the config field that it sets, if any.

    For experiments on the user's own files that is a field of the config. For the others, the path
    is a folder to search first, which is no part of a run: NPS_DATA while inside.
    """
    if path is None:
        yield {}
        return
    if not str(path).strip():
        raise UserError("data: got an empty path, expected a folder or file")
    if experiment.data_field is not None:
        yield {experiment.data_field: own_files(path, "data")}
        return
    path = Path(path).expanduser().absolute()
    if not path.exists():
        raise UserError(f"data: no such folder or file: {path}")
    if not path.is_dir():
        raise UserError(f"data: got the file {path}, expected a folder")
    before = os.environ.get("NPS_DATA")
    os.environ["NPS_DATA"] = str(path)
    try:
        yield {}
    finally:
        if before is None:
            del os.environ["NPS_DATA"]
        else:
            os.environ["NPS_DATA"] = before


def own_files(path: Path | str, flag: str) -> str:
    """The path of the user's own files as a config holds it: absolute, and text.

    Args:
        path: a file, a folder, or `minari:ID`.
        flag: what errors call it.
    """
    from nps.worlds.custom.load import locate

    found = locate(path).absolute()
    if not found.exists():
        raise UserError(f"{flag}: no such folder or file: {path}")
    try:
        str(found).encode()
    except UnicodeEncodeError:
        raise UserError(f"{flag}: got {found}, expected a path that is text (UTF-8)") from None
    return str(found)
