"""Seeds of a stack continue together, whatever their process was doing when it was killed."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nps.training import checkpoint
from nps.training.run import Run
from tests.test_cli import SMALL, call
from tests.training.test_stack import SEEDS, plain
from tests.training.tools import files, go

ROOT = Path(__file__).parents[2]
EVERY_EPOCH = {"seeds": SEEDS, "seconds_between_saves": 0.0}  # after steps 5, 10, 15 and 20


def killed(start, folder, step):
    """Run code that trains a stack; kill -9 it once seed 0 has saved a step, and seed 1 has not."""
    script = f"""
import os, signal, time
from pathlib import Path
from nps.training import checkpoint

folder, write = Path({str(folder)!r}), checkpoint.write

def write_or_die(where, saved):
    if saved.step == {step} and where.parent.name == "seed-1":
        while not (folder / "seed-0/checkpoints/step-{step:08d}").exists():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)
    return write(where, saved)

checkpoint.write = write_or_die
{start}
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert done.returncode == -9


def newest_steps(folder):
    return [checkpoint.steps(folder / f"seed-{s}/checkpoints")[-1:] for s in SEEDS]


def assert_same_stacks(ours, theirs):
    for seed in SEEDS:
        assert files(ours / f"seed-{seed}") == files(theirs / f"seed-{seed}")


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("step", [5, 15, 20])
def test_killed_between_the_writes_of_two_seeds(tmp_path, step, keep):
    """In the first save, in one in the middle, in the last: then all is as if unbroken."""
    go(tmp_path / "whole", task=plain(), keep=keep, **EVERY_EPOCH)
    settings = f"task=plain(), seeds=SEEDS, seconds_between_saves=0.0, keep={keep}"
    start = f"""
from tests.training.test_stack import SEEDS, plain
from tests.training.tools import go
go(folder, {settings})
"""
    killed(start, tmp_path / "killed", step)
    ahead, behind, _ = newest_steps(tmp_path / "killed")
    assert (ahead, behind) == ([step], [step - 5] if step > 5 else [])
    task = go(tmp_path / "killed", task=plain(), keep=keep, **EVERY_EPOCH)
    where = f"step {step - 5}" if step > 5 else "the beginning"
    assert f"not every seed of its stack has step {step}; all of them go on from {where}" in str(
        task.said
    )
    assert_same_stacks(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.parametrize("damage", ["spoiled", "deleted"])
def test_a_seed_that_lost_its_newest_checkpoint_takes_the_others_along(tmp_path, damage):
    go(tmp_path / "whole", task=plain(), **EVERY_EPOCH)
    go(tmp_path / "parts", stop_at=13, task=plain(), **EVERY_EPOCH)
    lost = tmp_path / "parts/seed-5/checkpoints/step-00000013"
    if damage == "spoiled":
        (lost / "model.safetensors").write_bytes(b"")
    else:
        shutil.rmtree(lost)
    task = go(tmp_path / "parts", task=plain(), **EVERY_EPOCH)
    assert any("all of them go on from step 10" in line for line in task.said)
    aside = tmp_path / "parts/seed-5/checkpoints/damaged-step-00000013"
    assert aside.exists() == (damage == "spoiled")
    shutil.rmtree(aside, ignore_errors=True)
    assert_same_stacks(tmp_path / "parts", tmp_path / "whole")


def test_a_seed_that_went_on_alone_holds_no_other_back(tmp_path):
    go(tmp_path, stop_at=8, task=plain(), **EVERY_EPOCH)
    go(tmp_path / "seed-1", stop_at=17, task=plain(), seeds=(1,), seconds_between_saves=0.0)
    task = go(tmp_path, stop_at=18, task=plain(), **EVERY_EPOCH)
    assert not any("not every seed" in line for line in task.said)
    resumed = [line.partition(": ")[2] for line in task.said if "resuming" in line]
    assert resumed == ["resuming after step 8 of 20"]  # and seed 1 would be next


TRAIN = ("train", "arithmetic", *SMALL, "--epochs=2", "--seeds=3", "--out")


def test_a_killed_command_ends_like_one_that_was_not(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    command = [*TRAIN[:-1], "--save-every=0", "--out"]
    call(*command, str(whole))
    killed(f"from nps import cli; cli.main({[*command, str(parts)]})", parts, 20)
    _, err = call(*command, str(parts))
    assert "seed-0: not every seed of its stack has step 20; all of them go on from step 10" in err
    for seed in range(3):
        ours, theirs = files(parts / f"seed-{seed}"), files(whole / f"seed-{seed}")
        assert ours.keys() == theirs.keys()
        for name in ours:
            if not name.endswith(("state.json", "manifest.json")):  # which have the run's id
                assert ours[name] == theirs[name], name


@pytest.mark.parametrize("lost", ["seed-1", "seed-1/checkpoints"])
def test_a_seed_that_starts_over_costs_the_others_nothing(tmp_path, lost):
    call(*TRAIN, str(tmp_path))
    shutil.rmtree(tmp_path / lost)
    before = files(tmp_path / "seed-0")
    _, err = call(*TRAIN, str(tmp_path))
    assert "seed-0: complete, 20 steps" in err
    assert "not every seed" not in err
    assert files(tmp_path / "seed-0") == before
    assert Run(tmp_path / "seed-1").metrics()[-1]["step"] == 20


@pytest.mark.parametrize(("pause", "saved"), [(0.0, [5, 10, 15, 20]), (1e-9, [5, 20])])
def test_slow_saves_are_rare(tmp_path, monkeypatch, pause, saved):
    """Unless one is asked for after every epoch."""
    write, seen = checkpoint.write, []

    def slowly(folder, given):
        seen.append(given.step)
        time.sleep(0.2)  # 5 % of four seconds
        return write(folder, given)

    monkeypatch.setattr(checkpoint, "write", slowly)
    go(tmp_path, seconds_between_saves=pause)
    assert sorted(set(seen)) == saved
