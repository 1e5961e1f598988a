"""The zoo: trained models that ship with nps, found by name wherever a run folder is expected.

    weights/<name>/    a model folder (nps.training.model_folder); nothing is written there
    index.json         the models, with size and sha256 of each of their files

`find_run` checks the files against the index. Nothing is unpickled: weights are safetensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from nps.errors import UserError, nearest
from nps.reading import Damaged, exists, read_json
from nps.training.model_folder import Card, read_card
from nps.training.stored import File, checked

HERE = Path(__file__).parent
MOST_BYTES = 10_000_000
"""Of all models together, since they are part of every installation."""


class Index(TypedDict):
    """index.json"""

    schema: int
    models: dict[str, dict[str, File]]


def index() -> Index:
    """The models that ship, with their files."""
    found: Index = read_json(HERE / "index.json", Index)
    return found


def names() -> list[str]:
    """The models that ship, in the order in which they are shown."""
    return list(index()["models"])


def find_run(name: Path | str) -> Path:
    """The folder of a run or model: a path that exists, or else the name of a model that ships.

    A path that does not exist and cannot be a name is returned as it is.
    """
    path, text = Path(name), str(name)
    if not text.strip() or exists(path):
        return path
    models = index()["models"]
    if text in models:
        return whole(text)
    if path.name == text and not path.suffix:
        why = "no such run folder, and no model of this name"
        raise UserError(f"{text}: {why}{nearest(text, models)}")
    return path


def whole(name: str) -> Path:
    """The folder of a model that ships, with every file as it was when it was added."""
    folder = HERE / "weights" / name
    for file, expected in index()["models"][name].items():
        try:
            checked(folder, file, expected)
        except Damaged as error:
            raise Damaged(f"model {name}: {error}; reinstall nps") from None
    return folder


def card(name: str) -> Card:
    """What is known of a model that ships."""
    return read_card(HERE / "weights" / name)


def is_shipped(folder: Path) -> bool:
    """Whether a folder is one of the zoo's, where nothing may be written."""
    return folder.resolve().parent == (HERE / "weights").resolve()


def require_writable(folder: Path) -> None:
    """Refuse to write into a model that ships."""
    if is_shipped(folder):
        raise UserError(f"{folder.name}: a model that ships with nps cannot be changed; give --out")
