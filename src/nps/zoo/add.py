"""Add a model folder to the zoo, or replace one: for maintainers, in a checkout."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from nps.errors import UserError
from nps.files import write_json
from nps.reading import read_bytes
from nps.training.config import SCHEMA
from nps.training.model_folder import file_of, read_card
from nps.training.stored import File
from nps.zoo import HERE, MOST_BYTES, Index, index

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def add(model: Path, name: str) -> int:
    """Copy a tested model into the zoo; returns the bytes of all models together."""
    require_name(name)
    if not read_card(model)["test"]:
        raise UserError(f"{model}: not tested; run `nps eval` before it is added")
    files = {path.name: file_of(read_bytes(path, most=MOST_BYTES)) for path in _files(model)}
    models = {**index()["models"], name: files}
    total = size(models)
    if total > MOST_BYTES:
        raise UserError(f"{name}: all models would have {total:,} bytes, at most {MOST_BYTES:,}")
    folder = HERE / "weights" / name
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(model, folder)
    found: Index = {"schema": SCHEMA, "models": models}
    write_json(HERE / "index.json", found)
    return total


def require_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UserError(f"name: got {name!r}, expected words of a to z and 0 to 9, joined by -")


def size(models: dict[str, dict[str, File]]) -> int:
    return sum(file["bytes"] for files in models.values() for file in files.values())


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())
