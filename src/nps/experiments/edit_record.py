"""`edits.json`, the record of a model that was edited by hand: what was changed, in which model.

The numbers from before the edits are those of that model, which is looked for beside the edited one
and among the models that ship.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from nps.errors import UserError
from nps.reading import exists, read_json
from nps.training.run import Run, run_at
from nps.zoo import HERE, names

FILE = "edits.json"


class Source(TypedDict):
    """The model that was edited."""

    folder: str
    """The name of its folder; where that is, the record does not say."""
    id: str | None
    """Of the run, which all models that are edits of it share."""
    which: str
    experiment: str
    preset: str
    seed: int
    step: int


class Record(TypedDict):
    """edits.json"""

    schema: int
    edits: dict[str, Any]
    """As `nps.inspect.Edits` reads them."""
    of: Source
    when: str
    nps: str


def read_record(folder: Path) -> Record | None:
    """The record of an edited model; None of any other."""
    if not exists(folder / FILE):
        return None
    record: Record = read_json(folder / FILE, Record)
    return record


def find_original(folder: Path, record: Record) -> Path | None:
    """The folder of the model that was edited; None if it is not found any more."""
    for path in _places(folder, record["of"]["folder"]):
        try:
            if path.resolve() != folder.resolve() and _is(run_at(path), record["of"]):
                return path
        except UserError:  # something else of that name, or damaged
            continue
    return None


def _places(folder: Path, name: str) -> Iterator[Path]:
    """Where an edited model is saved: beside the run, or beside the folder of its seeds."""
    beside = folder.absolute().parent
    if Path(name).name != name:  # from outside: not a name
        return
    yield beside / name
    yield from sorted(beside.glob(f"*/{name}"))
    if name in names():
        yield HERE / "weights" / name


def _is(run: Run, source: Source) -> bool:
    """Whether it is the run, as far as its config says."""
    saved = run.read()
    return all(saved.get(key) == source.get(key) for key in ("id", "experiment", "seed"))
