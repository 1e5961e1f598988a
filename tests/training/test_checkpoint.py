"""Checkpoints are whole or not there, whatever happens while they are written or afterwards."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest
import torch

from nps.errors import RunFailed, UserError
from nps.training import checkpoint
from nps.training.checkpoint import Checkpoint
from tests.training.tools import files, go


def moment(step: int, value: float = 1.0) -> Checkpoint:
    return Checkpoint(step, {"model": {"w": torch.full((64,), value)}}, {"note": value})


def test_round_trip(tmp_path):
    checkpoint.save(tmp_path, moment(3, 2.5), keep=2)
    back = checkpoint.load(tmp_path / "step-00000003")
    assert back.step == 3
    assert back.state == {"note": 2.5}
    assert torch.equal(back.tensors["model"]["w"], torch.full((64,), 2.5))


def test_keeps_the_newest(tmp_path):
    for step in (1, 2, 3, 4):
        checkpoint.save(tmp_path, moment(step), keep=2)
    assert checkpoint.steps(tmp_path) == [3, 4]
    assert not list(tmp_path.glob(".tmp*"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: (p / "model.safetensors").write_bytes(
            (p / "model.safetensors").read_bytes()[:-1]
        ),
        lambda p: (p / "model.safetensors").write_bytes(
            (p / "model.safetensors").read_bytes()[:-1] + b"\x55"
        ),
        lambda p: (p / "model.safetensors").unlink(),
        lambda p: (p / "manifest.json").write_text('{"files": '),
        lambda p: (p / "manifest.json").unlink(),
        lambda p: (p / "manifest.json").write_text("[]"),
        lambda p: (p / "state.json").write_text("{}"),
    ],
)
def test_damaged_newest_is_reported_and_the_one_before_is_used(tmp_path, damage):
    checkpoint.save(tmp_path, moment(1), keep=5)
    checkpoint.save(tmp_path, moment(2), keep=5)
    damage(tmp_path / "step-00000002")
    reported: list[str] = []
    found = checkpoint.newest(tmp_path, reported.append)
    assert found is not None
    assert found.step == 1
    assert "step-00000002" in reported[0]
    assert "step-00000001" in reported[-1]


def test_training_goes_on_from_before_the_damage(tmp_path):
    go(tmp_path / "whole")
    go(tmp_path / "parts", stop_at=6)
    go(tmp_path / "parts", stop_at=13)
    newest = tmp_path / "parts/checkpoints/step-00000013/optimizer.safetensors"
    newest.write_bytes(newest.read_bytes()[:40])
    go(tmp_path / "parts")
    last = "checkpoints/step-00000020/model.safetensors"
    assert files(tmp_path / "parts")[last] == files(tmp_path / "whole")[last]


def test_newer_schema_is_refused(tmp_path):
    path = checkpoint.save(tmp_path, moment(1), keep=1)
    text = (path / "manifest.json").read_text().replace('"schema": 1', '"schema": 99')
    (path / "manifest.json").write_text(text)
    with pytest.raises(UserError, match="schema 99, this nps reads up to 1"):
        checkpoint.load(path)


def test_a_pickle_in_the_folder_is_never_opened(tmp_path):
    path = checkpoint.save(tmp_path, moment(1), keep=1)
    marker = tmp_path / "executed"
    bomb = f"cos\nsystem\n(S'touch {marker}'\ntR.".encode()
    (path / "model.pt").write_bytes(bomb)
    (path / "model.safetensors").write_bytes(bomb)
    with pytest.raises(UserError, match="damaged"):
        checkpoint.load(path)
    assert not marker.exists()


def test_full_disk_is_one_line_and_leaves_the_checkpoint_before(tmp_path):
    """A real limit on file size, in a process of its own: writes fail as on a full disk."""
    checkpoint.save(tmp_path, moment(1), keep=2)
    script = f"""
        import resource, torch
        from pathlib import Path
        from nps.errors import RunFailed
        from nps.training import checkpoint
        from nps.training.checkpoint import Checkpoint
        big = Checkpoint(2, {{"model": {{"w": torch.zeros(100_000)}}}}, {{}})
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            checkpoint.save(Path({str(tmp_path)!r}), big, keep=2)
        except RunFailed as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert os.strerror(errno.EFBIG) in done.stdout
    assert "step-00000001 is whole" in done.stdout
    assert done.stdout.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert checkpoint.load(tmp_path / "step-00000001").step == 1
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_disk_errors_while_training_are_one_line(tmp_path, monkeypatch, code):
    go(tmp_path / "run", stop_at=5)
    before = files(tmp_path / "run")

    def fail(path, data):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(checkpoint, "write_bytes", fail)
    with pytest.raises(RunFailed) as error:
        go(tmp_path / "run", stop_at=8)
    assert os.strerror(code) in str(error.value)
    assert "\n" not in str(error.value)
    after = files(tmp_path / "run")
    assert {k: v for k, v in after.items() if "checkpoints" in k} == {
        k: v for k, v in before.items() if "checkpoints" in k
    }


def test_killed_while_saving_leaves_only_whole_checkpoints(tmp_path):
    """SIGKILL at random moments of a process that does nothing but save."""
    script = f"""
        import itertools, torch
        from pathlib import Path
        from nps.training import checkpoint
        from nps.training.checkpoint import Checkpoint
        print("ready", flush=True)
        for step in itertools.count(1):
            tensors = {{"model": {{"w": torch.full((20_000,), float(step))}}}}
            checkpoint.save(Path({str(tmp_path)!r}), Checkpoint(step, tensors, {{}}), keep=2)
    """
    for pause in (0.03, 0.08, 0.15):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
        reported: list[str] = []
        found = checkpoint.newest(tmp_path, reported.append)
        if found is not None:
            assert (found.tensors["model"]["w"] == found.step).all()
        assert reported == []
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
