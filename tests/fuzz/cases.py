"""Small real run folders, the commands that read them, and a command under watch.

Commands run in this process: hundreds of them take seconds. Each has a time limit, an address space
that cannot grow much, and no more permissions than an ordinary user.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import resource
import signal
import stat
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

import nps
from nps import cli
from nps.errors import RunFailed, UserError
from nps.experiments import find_preset
from nps.jobs.processes import End
from nps.training.config import Settings
from nps.training.loop import train
from nps.training.run import Run, identity
from nps.training.signals import Interrupted
from tests.ordinary_user import as_ordinary_user

SECONDS = 20.0
"""Far more than any command needs here: a limit, not a measurement."""
ROOM = 2**30
"""Bytes by which the address space may grow during a command."""

SMALL = {
    "epochs": 4,
    "train_examples": 64,
    "validation_examples": 16,
    "test_examples": 16,
    "batch_size": 32,
    "validate_every": 2,
    "hidden_dim": 4,
}
OWN = {
    "episodes": "data.npz",
    "epochs": 4,
    "extractor": "small",
    "slots": 2,
    "hidden_dim": 8,
    "width": 2,
    "batch_size": 16,
    "validate_every": 2,
}


def flags(changes: dict[str, object]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in changes.items()]


# -- the folders -------------------------------------------------------------------------------


def trained(
    folders: dict[int, Path], preset: str, changes: dict[str, object], *stops: int | None
) -> None:
    """Train a stack of seeds in several sessions, each up to a step, or to the end if None."""
    experiment, chosen = find_preset(preset)
    config = dataclasses.replace(chosen.config, **changes)
    task = experiment.make_task(config, torch.device("cpu"))
    runs = {seed: Run(folder) for seed, folder in folders.items()}
    for seed, run in runs.items():
        with run.writing():
            run.claim(identity(experiment.name, preset, seed, config))
    for stop in stops:
        with contextlib.suppress(Interrupted):
            train(task, config, runs, torch.device("cpu"), Settings(stop_at=stop), list)


def record(path: Path) -> None:
    """Episodes of a bright column that actions shift."""
    draw, side, count = np.random.default_rng(0), 10, 60
    action = draw.integers(3, size=count)
    obs = np.zeros((count, side, side, 3), np.uint8)
    obs[np.arange(count), :, np.cumsum(action - 1) % side] = 255
    ends = np.arange(count) % 10 == 9
    np.savez(path, obs=obs, action=action, episode_end=ends)


def make_all(root: Path) -> None:
    """One folder for each kind of run: half trained, a tested sweep, own data, a results table."""
    trained({0: root / "half/arithmetic/seed-0"}, "arithmetic", SMALL, 2, 5)
    assert call(commands_of("half", root / "half")["eval"]).code == 0
    point = root / "sweep/rules=3"
    seeds = {seed: point / f"seed-{seed}" for seed in (0, 1)}
    trained(seeds, "arithmetic", {**SMALL, "rules": 3}, 5, None)
    assert call(commands_of("sweep", root / "sweep")["sweep"]).code == 0
    (root / "own").mkdir()
    record(root / "own/data.npz")
    with contextlib.chdir(root / "own"):
        trained(
            {0: root / "own/world-model/seed-0"},
            "world-model",
            {**OWN, "episodes": "data.npz"},
            5,
            None,
        )
    assert call(commands_of("own", root / "own")["eval"]).code == 0


def commands_of(kind: str, folder: Path) -> dict[str, Callable[[], object]]:
    """What a user would do with a folder; each command in the folder itself."""
    variants = {"half": "arithmetic", "sweep": "rules=3", "own": "world-model"}
    run = f"{variants[kind]}/seed-0"

    def command(*args: str) -> Callable[[], object]:
        return lambda: cli.main(args)

    found = {
        "eval": command("eval", run),
        "eval last": command("eval", run, "--which=last"),
        "inspect": command("inspect", run),
        "table": command("table", "."),
        "table list": command("table", ".", "--list"),
        "table add": command("table", "--add", run, "--to", "results"),
        "load": lambda: nps.load(run).model,
    }
    if kind == "half":
        found["train"] = command("train", "arithmetic", "--out", run, *flags(SMALL))
        found["eval step"] = command("eval", f"{run}/checkpoints/step-00000005")
    elif kind == "own":
        found["train"] = command("train", "world-model", "--out", run, *flags(OWN))
    else:
        args = ["--grid", "rules=3", "--seeds=2", *flags(SMALL)]
        found["sweep"] = command("sweep", "arithmetic", "--out", ".", *args)
    where = folder

    def there(act: Callable[[], object]) -> Callable[[], object]:
        def acted() -> object:
            with contextlib.chdir(where):
                return act()

        return acted

    return {name: there(act) for name, act in found.items()}


class Inline:
    """A training of a sweep, in this process."""

    def __init__(self, job: object) -> None:
        self.end = End(0, "")
        said = io.StringIO()  # a process of its own would keep it, too
        try:
            with contextlib.redirect_stderr(said):
                cli.main(job.command)
        except SystemExit as stop:
            self.end = End(int(stop.code or 0), said.getvalue().splitlines()[-1])

    def poll(self) -> End:
        return self.end


# -- under watch -------------------------------------------------------------------------------


@dataclasses.dataclass
class Outcome:
    code: int
    err: str
    trouble: str = ""
    """A traceback, or how else it ended as no command should."""


class Hung(BaseException):
    """Not an Exception: nothing on the way catches it."""


def call(act: Callable[[], object]) -> Outcome:
    """Run a command and say how it ended."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict", write_through=True)
    err = io.StringIO()
    trouble, code = "", 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with limited():
                act()
        except SystemExit as stop:
            code = int(stop.code or 0)
        except (UserError, RunFailed) as error:  # from nps.load
            code = 2 if isinstance(error, UserError) else 1
            print(f"nps: error: {error}", file=err)
        except BaseException:
            code, trouble = -1, traceback.format_exc()
    said = err.getvalue()
    lines = said.splitlines()
    if not trouble and not all(line.startswith("nps: ") for line in lines):
        trouble = f"not a line of ours: {said[:2000]!r}"
    errors = [line for line in lines if line.startswith("nps: error: ")]
    if not trouble and len(errors) != (code != 0):
        trouble = f"exit code {code} and {len(errors)} lines of error: {said[:2000]!r}"
    return Outcome(code, said, trouble)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """A time limit, a limit on memory, and the permissions of an ordinary user."""

    def stop(signum: int, frame: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + ROOM, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with as_ordinary_user():
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


# -- what must not be lost ----------------------------------------------------------------------


def contents(folder: Path) -> dict[str, object]:
    """Every file below the folder, as it is: its bytes if it is small and a regular file."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        name = str(path.relative_to(folder))
        if stat.S_ISREG(info.st_mode):
            found[name] = path.read_bytes() if info.st_size < 2**20 else info.st_size
        elif stat.S_ISLNK(info.st_mode):
            found[name] = os.readlink(path)
        elif not stat.S_ISDIR(info.st_mode):
            found[name] = stat.S_IFMT(info.st_mode)
    return found
