"""`nps models`: the trained models that ship with nps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nps.commands.shared import about, require
from nps.flags import parse


@dataclass(frozen=True)
class ModelsArgs:
    add: Path | None = None
    """For maintainers: add this tested run, under the name --name."""
    name: str = ""
    """The name of the model that --add adds; one of this name is replaced."""
    data: bool = False
    """With --add, also add the file of recorded episodes that it was trained on."""
    note: str = ""
    """With --add, a sentence for the card."""


def models(args: Sequence[str]) -> None:
    """List the trained models that ship with nps.

    Each can be named wherever a run folder is expected. docs/guides/models.md has more.

    Examples:
      nps models
      nps eval blocks-best
      nps inspect arithmetic-energy
      nps models --add runs/zoo/blocks-best --name blocks-best
    """
    options = parse(ModelsArgs, args, prog="nps models", about=about(models))
    if options.add is not None:
        require(bool(options.name), "--name: expected a name for the model")
        _add(options.add, options.name, options.data, options.note)
        return
    others = bool(options.name or options.data or options.note)
    require(not others, "nps models: --name, --data and --note need --add")
    _list()


def _list() -> None:
    from rich.console import Console

    from nps import zoo
    from nps.inspect.report import Lines, Part, Report, Table
    from nps.training.model_folder import main_floor, main_number
    from nps.zoo.add import size
    from nps.zoo.readme import budget

    found = zoo.index()["models"]
    cards = {name: zoo.card(name) for name in found}
    rows = [
        [
            name,
            _in_words(sum(file["bytes"] for file in files.values())),
            main_number(cards[name]),
            main_floor(cards[name]),
        ]
        for name, files in found.items()
    ]
    many = "1 model" if len(rows) == 1 else f"{len(rows)} models"
    total = f"{many}, {size(found) / 1e6:.2f} MB. Floor: a model that has learned nothing."
    table = Table(["Name", "Size", "Test", "Floor"], rows, total)
    parts: list[Part] = [table]
    changed = [f"  {name}: {budget(card)}" for name, card in cards.items() if card["changed"]]
    if changed:
        parts.append(Lines(["Trained with other settings than their presets:", *changed]))
    Report("Models that ship with nps", parts).show(Console())
    if rows:
        print(f'\nLoad one: nps.load("{rows[0][0]}"), or nps eval {rows[0][0]}')


def _in_words(size: int) -> str:
    """In few letters: the whole table fits into 80 columns."""
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1000:.0f} kB"


def _add(run: Path, name: str, data: bool, note: str) -> None:
    import tempfile

    from nps.experiments.export import export
    from nps.zoo.add import add, require_name

    require_name(name)
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch, name)
        export(run, model, licence="Apache-2.0", with_data=data, note=note)
        total = add(model, name)
    print(f"{name}: added; all models together have {total:,} bytes")
