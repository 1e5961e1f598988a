"""What a caller in Python gives besides a run: a device, and where the data are."""

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
    """A torch device that is there."""
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
    """Use the user's data inside; yields the config field that they set, if any.

    For experiments on the user's own files that is a field of the config. For the others, the path
    is a folder to search first, which is no part of a run: NPS_DATA while inside.
    """
    if path is None:
        yield {}
        return
    if not str(path).strip():
        raise UserError("data: got an empty path, expected a folder or file")
    path = Path(path).expanduser().absolute()
    if not path.exists():
        raise UserError(f"data: no such folder or file: {path}")
    if experiment.data_field is not None:
        yield {experiment.data_field: str(path)}
        return
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
