"""What is wrong with the flags, in one line: found from the dataclass, not from tyro's boxes."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from nps.commands.train import _train_args
from nps.errors import UserError
from nps.experiments import EXPERIMENTS
from nps.flags import flag_names, nearest_flag, parse


@dataclass(frozen=True)
class Inner:
    rules: int = 4
    rule_dim: int = 12
    learning_rate: float = 1e-4
    clip_norm: float | None = None
    query: Literal["linear", "mlp"] = "linear"

    def __post_init__(self) -> None:
        if self.rules < 1:
            raise ValueError(f"rules: got {self.rules}, expected at least 1")


@dataclass(frozen=True, kw_only=True)
class Args:
    out: Path
    seed: int = 0
    device: Literal["cpu", "cuda"] = "cpu"
    fresh: bool = False
    capture: bool = True
    into: tuple[Path, ...] = ()
    sizes: tuple[int, ...] = ()


def error(*args: str, cls: type = Args) -> str:
    with pytest.raises(UserError) as caught:
        parse(cls, args, prog="nps test", about="")
    return str(caught.value).removeprefix("nps test: ")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "--out is required"),
        (["--out"], "--out: got no value, expected a path"),
        (["--out", "x", "--seed", "two"], "--seed: got 'two', expected an integer"),
        (["--out", "x", "--seed=1.5"], "--seed: got '1.5', expected an integer"),
        (["--out", "x", "--seed", "--fresh"], "--seed: got no value, expected an integer"),
        (["--out", "x", "--device", "tpu"], "--device: got 'tpu', expected one of cpu, cuda"),
        (["--out", "x", "--gpu"], "unknown flag --gpu; did you mean --device cuda?"),
        (["--out", "x", "--fresh", "yes"], "--fresh: got 'yes', expected no value"),
        (["--out", "x", "--fresh=1"], "--fresh: got '1', expected no value"),
        (["--out", "x", "--no-captur"], "unknown flag --no-captur; did you mean --no-capture?"),
        (["--out", "x", "more"], "unexpected argument 'more'"),
        (["seed", "3"], "unexpected argument 'seed'; did you mean --seed?"),
        (["--out", "x", "--seed", "1", "2"], "unexpected argument '2'"),
        (["--out", "x", "--sizes", "1", "b"], "--sizes: got 'b', expected an integer"),
        (["--out", "x", "--zzz"], "unknown flag --zzz; --help lists the flags"),
        (["--out", "x", "-q"], "unknown flag -q; --help lists the flags"),
        (["--out", "x", "--seed", "9" * 5000], f"--seed: got '{'9' * 59}…', expected an integer"),
    ],
)
def test_a_mistake_is_named(args, message):
    assert error(*args) == message


def test_values_are_checked_by_the_dataclass_inside():
    assert error("--rules=0", cls=Inner) == "rules: got 0, expected at least 1"
    assert error("--clip-norm=x", cls=Inner) == "--clip-norm: got 'x', expected a number or None"
    assert error("--clip_norm=x", cls=Inner) == "--clip-norm: got 'x', expected a number or None"
    assert error("--lr=1", cls=Inner) == "unknown flag --lr; did you mean --learning-rate?"
    assert error("--rule=1", cls=Inner) == "unknown flag --rule; did you mean --rules?"


def test_none_is_written_as_the_help_writes_it():
    @dataclass(frozen=True)
    class Settings:
        clip_norm: float | None = 1.0
        interaction: Literal["none", "gnn"] = "gnn"
        seed: int = 0
        out: Path = Path("x")

    for words in (["--clip-norm", "none"], ["--clip_norm=none"], ["--clip-norm", "None"]):
        assert parse(Settings, words, prog="nps", about="").clip_norm is None
    both = parse(Settings, ["--interaction", "none", "--out", "none"], prog="nps", about="")
    assert (both.interaction, both.out, both.clip_norm) == ("none", Path("none"), 1.0)
    assert error("--seed=none", cls=Settings) == "--seed: got 'none', expected an integer"


def test_what_tyro_takes_is_taken():
    given = ["--out", "x", "--seed", "-3", "--fresh", "--no-capture", "--into", "a", "b"]
    parsed = parse(Args, given, prog="nps test", about="")
    assert parsed == Args(
        out=Path("x"), seed=-3, fresh=True, capture=False, into=(Path("a"), Path("b"))
    )


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_near_miss_gets_its_suggestion(experiment):
    """A letter missing, twice, or swapped with the next, anywhere in any flag."""
    preset = next(iter(experiment.presets.values()))
    cls = _train_args(experiment.config, preset.config)
    names = list(flag_names(cls))
    assert len(names) > 30
    missed = []
    for name, i in itertools.chain.from_iterable(
        ((name, i) for i in range(2, len(name))) for name in names if len(name) > 6
    ):
        typos = {
            name[:i] + name[i + 1 :],
            name[: i + 1] + name[i:],
            name[:i] + name[i : i + 2][::-1] + name[i + 2 :],
        }
        for typo in typos - set(names):
            if typo.startswith("---") or typo.endswith("-"):
                continue
            if (said := nearest_flag(typo, names)) != f"; did you mean {name}?":
                missed.append((typo, said))
    # A few typos are as near to another flag: --seds to --seed and --seeds.
    assert len(missed) < 0.01 * sum(map(len, names)), missed
