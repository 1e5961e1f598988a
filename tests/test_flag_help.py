"""Help is written from the dataclasses: every flag, its line, its default, in any width."""

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
import tyro

from nps.cli import COMMANDS
from nps.commands.train import _shared_flags, _train_args
from nps.experiments import EXPERIMENTS
from nps.flag_help import flags_of, help_text
from tests.test_cli import call


@dataclass(frozen=True)
class Base:
    flags_title: ClassVar[str] = "Training"
    epochs: int = 100
    """Passes over the
    training set."""
    clip: float | None = None
    """Largest norm; none does not clip."""


@dataclass(frozen=True)
class Config(Base):
    epochs: int = 7
    kind: Literal["a", "b"] = "b"
    """Which of the two."""
    dry: bool = False
    """Only look."""
    wet: bool = True
    """Also act."""


@dataclass(frozen=True, kw_only=True)
class Args:
    out: Annotated[str, tyro.conf.arg(metavar="PATH")]
    """Where to."""
    sizes: tuple[int, ...] = (1, 2)
    """Some numbers (default: two of them)."""
    config: Annotated[Config, tyro.conf.arg(name="")] = Config(epochs=9)


def test_help_of_a_dataclass(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert help_text("nps test", "What it does.", list(flags_of(Args))) == (
        "nps test [flags]\n\n"
        "What it does.\n\n"
        "Flags:\n"
        "  --out PATH              Where to. Required.\n"
        "  --sizes INT …           Some numbers (default: two of\n"
        "                          them).\n\n"
        "Training:\n"
        "  --epochs INT            Passes over the training set.\n"
        "                          (default: 9)\n"
        "  --clip FLOAT            Largest norm; none does not clip.\n\n"
        "This experiment:\n"
        "  --kind a|b              Which of the two. (default: b)\n"
        "  --dry                   Only look.\n"
        "  --[no-]wet              Also act. (default: yes)"
    )


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_flag_has_a_line_of_help(experiment):
    preset = next(iter(experiment.presets.values()))
    flags = list(flags_of(_train_args(experiment.config, preset.config)))
    assert len(flags) > 25
    assert not [flag.name for flag in flags if not flag.about.endswith((".", ")"))]


def test_train_shows_the_flags_that_all_presets_share():
    shown, _ = call("train", "--help")
    assert "`nps train PRESET --help`" in shown.replace("\n", " ")
    listed = set(re.findall(r"^  (--\S+)", shown, re.MULTILINE))
    assert {"--out", "--seeds", "--epochs", "--learning-rate", "--rules", "--data"} <= listed
    for experiment in EXPERIMENTS.values():
        names = {flag.name for flag in flags_of(_train_args(experiment.config, None))}
        assert {flag.name for flag in _shared_flags()} <= names
    assert "--game" not in listed
    assert "(default: 300)" not in shown  # a preset's own


@pytest.mark.parametrize("columns", [40, 80])
def test_help_fits_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    commands = [[name, "--help"] for name in COMMANDS]
    presets = [["train", next(iter(each.presets)), "--help"] for each in EXPERIMENTS.values()]
    for args in [[], *commands, *presets, ["presets"], ["data", "atari", "--help"]]:
        shown = call(*args)[0].splitlines()
        assert max(map(len, shown)) <= 80, args
        if columns < 80:  # names and examples cannot be broken
            shown = [line for line in shown if line.startswith(" " * 26)]
            assert all(len(line) <= max(columns, 26 + len(line.split()[-1])) for line in shown)
