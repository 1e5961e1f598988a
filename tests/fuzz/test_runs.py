"""Damaged run folders: hundreds of them, each read by the commands that a user would try.

Whatever happened to a folder, a command succeeds or says in one line what is wrong. It ends in
time, takes no memory to speak of, and loses nothing that was not damaged. NPS_FUZZ=FIRST:LAST tries
other seeds, and as many as you like.
"""

import os
import random
import re
import shutil
from pathlib import Path

import pytest

from tests.fuzz import cases
from tests.fuzz.damage import damages_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # nps.load names what it skips

FIRST, LAST = map(int, os.environ.get("NPS_FUZZ", "0:240").split(":"))
COMMANDS = 3
"""Commands that each damaged folder is read by."""
GROWTH = 200 * 2**20
"""Bytes that all cases together may leave in memory."""

LOG = "metrics.jsonl"
NOTHING = re.compile("(?!)")
MAY_CHANGE = {
    "eval": re.compile(r".*/test[^/]*\.json"),
    "inspect": re.compile(r".*/figures/.*"),
    "table add": re.compile(r"results/.*"),
    "train": re.compile(
        r".*/(\.lock|provenance\.json|metrics\.jsonl|(checkpoints|figures)/.*)"
        r"|.*/(damaged-)?step-\d+.*"
    ),
}
MAY_CHANGE |= dict.fromkeys(("eval last", "eval step"), MAY_CHANGE["eval"])
MAY_CHANGE["sweep"] = re.compile(
    rf"\.lock|(sweep|table)\.(json|md)|{MAY_CHANGE['train'].pattern}|{MAY_CHANGE['eval'].pattern}"
)
"""What each command writes; the others write nothing."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    cases.make_all(root)
    return root


@pytest.fixture(scope="module")
def whole_log(made, tmp_path_factory):
    """The metric log of the half trained run after the rest of its training."""
    folder = tmp_path_factory.mktemp("whole") / "half"
    shutil.copytree(made / "half", folder)
    assert cases.call(cases.commands_of("half", folder)["train"]).code == 0
    return (folder / "arithmetic/seed-0/metrics.jsonl").read_bytes()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No process for each training of a sweep, and no figures, which take seconds."""
    monkeypatch.setattr("nps.jobs.sweep.Process", cases.Inline)
    monkeypatch.setattr("nps.inspect.figures.available", lambda: False)


def copied(made: Path, kind: str, to: Path) -> Path:
    """A copy to damage, a file of somebody else beside it, and one inside the run."""
    shutil.copytree(made / kind, to / "case")
    (to / "outside.bin").write_bytes(b"theirs")
    for run in to.glob("case/*/seed-0"):
        (run / "thesis.pt").write_bytes(b"mine")
    return to / "case"


@pytest.mark.parametrize("kind", ["half", "sweep", "own"])
def test_a_whole_folder_is_no_trouble(made, tmp_path, kind):
    folder = copied(made, kind, tmp_path)
    for name, act in cases.commands_of(kind, folder).items():
        outcome = cases.call(act)
        assert (outcome.code, outcome.trouble) == (0, ""), name


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_a_damaged_folder_is_one_line(made, whole_log, tmp_path, seed):
    draw = random.Random(seed)
    kind = draw.choice(("half", "sweep", "own"))
    folder = copied(made, kind, tmp_path)
    path = chosen(draw, folder)
    damage = draw.choice(damages_of(path))
    damage(draw, path)
    what = f"seed {seed}: {damage.__name__} of {path.relative_to(folder)}"
    commands = cases.commands_of(kind, folder)
    resident = cases.resident()
    for name in draw.sample(sorted(commands), COMMANDS):
        before = cases.contents(tmp_path)
        outcome = cases.call(commands[name])
        assert not outcome.trouble, f"{what}, then {name}: {outcome.trouble}"
        after = cases.contents(tmp_path)
        lost = changed(before, after, MAY_CHANGE.get(name, NOTHING))
        if name in ("train", "sweep"):  # where there is no run, one begins
            lost = [each for each in lost if Path(each).name != "config.json" or each in before]
        lost += pruned(before, after) if outcome.code else []
        assert not lost, f"{what}, then {name}, exit code {outcome.code}, changed {lost}"
        if kind == "half" and name == "train" and not outcome.code and path.name != LOG:
            assert after[f"case/arithmetic/seed-0/{LOG}"] == whole_log, what
    assert cases.resident() - resident < GROWTH, what


def chosen(draw: random.Random, folder: Path) -> Path:
    """A file or folder to damage. Every name is as likely as any other."""
    paths = [path for path in sorted(folder.rglob("*")) if path.name != "thesis.pt"]
    names = sorted({re.sub(r"\d+", "0", path.name) for path in paths})
    name = draw.choice(names)
    return draw.choice([path for path in paths if re.sub(r"\d+", "0", path.name) == name])


def changed(
    before: dict[str, object], after: dict[str, object], allowed: re.Pattern[str]
) -> list[str]:
    """Files that are new, gone or different and should not be, below the case or beside it."""
    names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    return sorted(name for name in names if not allowed.fullmatch(name.removeprefix("case/")))


def pruned(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """Files of checkpoints that are gone: a training that fails may only rename them."""
    kept = list(after.values())
    checkpoints = [name for name in before if "/checkpoints/" in name]
    return [name for name in checkpoints if before[name] not in kept]
