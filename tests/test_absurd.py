"""Absurd sizes, names and paths: one line, at once, with nothing written and no memory taken."""

import os
import resource
import subprocess
import sys

import pytest
import torch

from nps.errors import RunFailed
from nps.experiments.arithmetic import Config
from nps.jobs.grid import points
from nps.training import memory
from tests.test_cli import call

HUGE = str(10**20)

REFUSED = {
    "epochs": (["--epochs", HUGE], f"epochs: got {HUGE}, expected at most 2147483647"),
    "rules": (["--rules", str(10**9)], "rules: got 1000000000, expected at most 100000"),
    "rules beyond int64": (["--rules", HUGE], f"rules: got {HUGE}, expected at most"),
    "batch": (["--batch-size", HUGE], f"batch_size: got {HUGE}, expected at most 2147483647"),
    "warm-up": (["--warmup-steps", HUGE], f"warmup_steps: got {HUGE}, expected at most"),
    "examples": (["--train-examples", HUGE], f"train_examples: got {HUGE}, expected at most"),
    "digits": (["--epochs", "9" * 5000], "--epochs: got '9999"),
    "seeds": (["--seeds", str(10**8)], "--seeds: got 100000000, expected at most 10000"),
    "out": (["--out", "a" * 300], "--out: got a name of 300 bytes, expected at most 255"),
    "part of out": (["--out", f"a/{'é' * 150}/b"], "--out: got a name of 300 bytes"),
    "data": (["--data", "a" * 300], "--data: got a name of 300 bytes"),
}


@pytest.mark.parametrize(("flags", "message"), REFUSED.values(), ids=REFUSED)
def test_an_absurd_flag_is_refused(tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    out = [] if "--out" in flags else ["--out=run"]
    _, err = call("train", "arithmetic", *out, *flags, code=2)
    assert message in err
    assert err.count("\n") == 1
    assert len(err) < 400
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["eval", "a" * 300], "nps eval RUN: got a name of 300 bytes"),
        (["inspect", "a" * 300], "nps inspect RUN: got a name of 300 bytes"),
        (["table", "a" * 300], "nps table RESULTS: got a name of 300 bytes"),
        (["train", "a" * 300, "--out=x"], "nps train PRESET: got a name of 300 bytes"),
        (["run", "arithmetic", "--out", "a" * 300], "--out: got a name of 300 bytes"),
        (["run", "arithmetic", "--seeds", HUGE], f"--seeds: got {HUGE}, expected at most 10000"),
        (["sweep", "arithmetic", "--seeds", HUGE], f"--seeds: got {HUGE}, expected at most 10000"),
        (["sweep", "mnist", "--grid", f"start_from={'a' * 300}"], "--grid: got a name of 311"),
        (["eval", "a\nb"], r"a\nb: no such run folder"),
        (
            ["train", "arithmetic", "--out=x", "--data=a\nb"],
            r"--data: no such folder or file: a\nb",
        ),
        (["train", "blocks-nps", "--out=x", "--stages=1000000"], "expected at most 1000"),
        # Before anything is fetched or written:
        (
            ["train", "mnist-fifth", "--out=x", "--start-from=nowhere"],
            "nowhere/seed-0: no such run",
        ),
        (["train", "mnist-fifth", "--out=x"], "expected --start-from, a folder of mnist"),
        (["sweep", "mnist-fifth", "--start-from=nowhere"], "nowhere/seed-0: no such run folder"),
        (["sweep", "mnist-fifth"], "expected --start-from, a folder of mnist"),
        (["sweep", "world-model", "--grid", "rules=1,2"], "expected --data with their file"),
        (["sweep", "world-model", "--grid=episodes=a.h5,b.h5"], "a.h5: no such file or folder"),
        (["train", "world-model", "--out=x"], "expected --data with their file"),
    ],
)
def test_nothing_is_written_or_fetched(tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nps.worlds.mnist.load", lambda world: pytest.fail("fetched"))
    _, err = call(*args, code=2)
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_grid_without_end_is_refused():
    grid = {name: tuple(range(1, 101)) for name in ("rules", "rule_dim", "key_dim")}
    with pytest.raises(ValueError, match="got 1000000 combinations, expected at most 10000"):
        points(Config(), grid, "all")


@pytest.mark.parametrize(
    "args",
    [
        ["arithmetic", "--rule-dim=10000000"],
        ["arithmetic", "--train-examples=2000000000"],
        ["arithmetic", "--hidden-dim=2000000000"],
        ["arithmetic", "--rules=100000", "--hidden-dim=1000000"],
        ["blocks-nps", "--train-episodes=100", "--test-episodes=100", "--slot-dim=1000000000"],
        ["blocks-nps", "--train-episodes=100", "--test-episodes=100", "--hidden-dim=100000000"],
        ["blocks-nps", "--train-episodes=100000000"],
    ],
    ids=" ".join,
)
def test_what_does_not_fit_is_refused_before_it_is_made(tmp_path, monkeypatch, args):
    """The memory that is free is made up, so that the test takes none, on any machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2**32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, err = call("train", *args, "--out=x", code=1)
    assert "not enough memory: " in err
    large = args[-1].split("=")[0]
    assert f"training needs 8 times as much, 4 GiB are free; choose a smaller {large}\n" in err
    assert err.count("\n") == 1
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken < 1_000_000  # KiB, of the 4 GiB
    assert list(tmp_path.iterdir()) == []


def test_large_tensors_count_together(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2**30)
    with memory.building("test"):
        torch.empty(2**24)  # 64 MiB, of which training needs 512 MiB
        torch.empty(10**9, device="meta")
        torch.empty(2**24)
        with pytest.raises(RunFailed, match="not enough memory: 16777216 numbers take 64 MiB"):
            torch.empty(2**24)


def test_names_that_are_no_text_are_printed(tmp_path):
    """A folder's name may be any bytes, and a terminal of any encoding."""
    name = os.fsdecode(b"r\xff")
    command = [sys.executable, "-m", "nps", "train", "arithmetic", "--out", name, "--epochs=1"]
    sizes = [f"--{each}-examples=64" for each in ("train", "validation", "test")]
    done = subprocess.run(
        [*command, *sizes],
        cwd=tmp_path,
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert rb"r\udcff: trained" in done.stdout


def test_data_in_a_path_that_is_no_text_are_refused(tmp_path, monkeypatch):
    """A config is JSON, which holds text alone: such a run could not be read again."""
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"r\xff.npz")
    (tmp_path / name).touch()
    _, err = call("train", "world-model", "--out=x", "--data", name, code=2)
    assert "expected a path that is text" in err
    assert os.listdir(tmp_path) == [name]
