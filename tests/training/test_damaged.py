"""Run folders that were damaged in ways that once ended in a traceback, a hang or a lost file."""

import hashlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

import nps
from nps.errors import RunFailed, UserError
from nps.training import checkpoint
from nps.training.log import MetricLog
from nps.training.run import Run
from tests.fuzz.damage import sign
from tests.test_cli import SMALL, call
from tests.training.tools import files, go

TRAIN = ("train", "arithmetic", *SMALL, "--epochs=2")


@pytest.fixture
def half(tmp_path):
    """A run that stopped in the middle of its third epoch."""
    go(tmp_path / "run", stop_at=12)
    return tmp_path / "run"


@pytest.fixture
def trained(tmp_path):
    call(*TRAIN, "--out", str(tmp_path / "run"))
    return tmp_path / "run"


def newest_of(run: Path) -> Path:
    return max((run / "checkpoints").iterdir())


# -- the log -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (lambda log: log[:-1], "were written"),
        (lambda log: log[: len(log) // 2], "were written"),
        (lambda log: b"\x00" * len(log), r"metrics\.jsonl:1: damaged, not JSON"),
        (lambda log: log.replace(b"epoch", b"apoch", 1), r"metrics\.jsonl:1: damaged, epoch is"),
        (lambda log: log.replace(b"{", b"[", 1), r"metrics\.jsonl:1: damaged, not JSON"),
    ],
)
def test_a_log_that_lost_rows_stops_the_training(half, damaged, message):
    log = half / "metrics.jsonl"
    log.write_bytes(damaged(log.read_bytes()))
    before = files(half), (half / "provenance.json").read_bytes()
    with pytest.raises(UserError, match=f"{message}.*; move it away .* or --fresh starts over"):
        go(half)
    assert (files(half), (half / "provenance.json").read_bytes()) == before


def test_a_log_that_was_moved_away_does_not_stop_it(half):
    before = (half / "metrics.jsonl").read_bytes()
    (half / "metrics.jsonl").unlink()
    task = go(half)
    assert any("metrics.jsonl: it is gone" in line for line in task.said)
    assert [row["epoch"] for row in Run(half).metrics()] == [3, 4]
    assert before.count(b"\n") == 2
    assert len(task.seen) == 8


def test_what_was_logged_after_the_checkpoint_may_be_anything(half, tmp_path):
    with (half / "metrics.jsonl").open("ab") as log:
        log.write(b'\x00\x00\n{"ep')
    go(half)
    go(tmp_path / "whole")
    assert (half / "metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()


def test_a_trained_run_without_a_log_is_still_trained(trained):
    (trained / "metrics.jsonl").unlink()
    assert f"{trained}: trained\n" in call(*TRAIN, "--out", str(trained))[0]


@pytest.mark.parametrize("name", ["metrics.jsonl", ".lock"])
def test_nothing_is_written_through_a_link(tmp_path, name):
    (tmp_path / "theirs").write_bytes(b"theirs")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to("../theirs")
    with pytest.raises(RunFailed, match="cannot write"):
        go(tmp_path / "run")
    assert (tmp_path / "theirs").read_bytes() == b"theirs"


@pytest.mark.parametrize("name", ["metrics.jsonl", ".lock"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / name)
    with pytest.raises(RunFailed, match="cannot write"):
        go(tmp_path / "run")


# -- checkpoints -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../metrics.jsonl", "/dev/zero", "a\0b", "", "..", "x" * 300])
def test_names_that_leave_the_checkpoint_are_not_read(half, name):
    path = newest_of(half)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][name] = manifest["files"].pop("optimizer.safetensors")
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError) as error:
        checkpoint.load(path)
    assert "\n" not in str(error.value)


def test_a_link_in_a_checkpoint_is_not_followed(half, tmp_path):
    path = newest_of(half)
    (path / "model.safetensors").rename(tmp_path / "elsewhere")
    (path / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(checkpoint.Unreadable, match="symbolic link, expected the file itself"):
        checkpoint.load(path)


def header(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no tensors",
        (2**62).to_bytes(8, "little") + b"{}",
        header('{"w": {"dtype": "F32", "shape": [1000000000], "data_offsets": [0, 4000000000]}}'),
        header('{"w": {"dtype": "F99", "shape": [0], "data_offsets": [0, 0]}}'),
        header('{"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}}'),
        header('{"w": 3}'),
        header("[" * 100_000),
    ],
)
def test_safetensors_that_are_none_are_damaged(half, data):
    path = newest_of(half)
    (path / "optimizer.safetensors").write_bytes(data)
    sign(path / "optimizer.safetensors")
    with pytest.raises(checkpoint.Damaged, match=r"optimizer\.safetensors is not safetensors"):
        checkpoint.load(path)


@pytest.mark.parametrize("size", [10 * 2**30, 3])
def test_a_file_of_another_size_is_not_read(half, size):
    path = newest_of(half)
    os.truncate(path / "optimizer.safetensors", size)
    with pytest.raises(checkpoint.Damaged, match=rf"\b{size} bytes, expected"):
        checkpoint.load(path)


@pytest.mark.parametrize("group", ["model", "best", "optimizer"])
def test_tensors_of_another_shape_are_refused(half, group):
    path = newest_of(half) / f"{group}.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    name = sorted(tensors)[0]
    tensors[name] = torch.zeros(3, 3)
    path.write_bytes(safetensors.torch.save(tensors))
    sign(path)
    before = files(half)
    with pytest.raises(UserError, match=rf"{group}\.safetensors: size mismatch for {name}"):
        go(half)
    assert files(half) == before


@pytest.mark.parametrize(
    "change",
    [
        {"step": 11},
        {"step": "12"},
        {"sums": None},
        {"sums": {"loss": "x"}},
        {"best_score": []},
        {"log_length": -1},
        {"log_length": 2**62},
    ],
)
def test_a_state_that_cannot_be_is_refused(half, change):
    path = newest_of(half) / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    sign(path)
    if change.get("log_length") == 2**62:
        with pytest.raises(UserError, match="were written"):
            go(half)
    else:
        with pytest.raises(checkpoint.Damaged):
            checkpoint.load(path.parent)


def test_weights_that_are_not_finite_are_refused(trained):
    path = newest_of(trained) / "best.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    tensors["layer.rules.embedding"][0, 0] = float("nan")
    path.write_bytes(safetensors.torch.save(tensors))
    sign(path)
    assert "weights that are not finite" in call("eval", str(trained), code=2)[1]
    with pytest.raises(UserError, match="not finite"):
        nps.load(trained).model  # noqa: B018


@pytest.mark.parametrize("command", ["eval", "inspect"])
def test_a_damaged_setting_is_named_with_its_file(trained, command):
    path = trained / "config.json"
    path.write_text(path.read_text().replace('"rules": 4', '"rules": "x"'))
    _, err = call(command, str(trained), code=2)
    assert f"{path}: damaged, config: rules is 'x'" in err
    with pytest.raises(UserError, match=f"{path}: damaged"):
        nps.load(trained)


def test_a_complete_run_with_a_model_that_does_not_fit_is_not_complete(trained):
    """A checkpoint from before checkpoints named their run, of another number of rules."""
    path = newest_of(trained)
    for name in ("model", "best"):
        file = path / f"{name}.safetensors"
        tensors = safetensors.torch.load(file.read_bytes())
        rows = tensors["layer.rules.embedding"]
        tensors["layer.rules.embedding"] = torch.cat([rows, rows[:1]])
        file.write_bytes(safetensors.torch.save(tensors))
        sign(file)
    state = json.loads((path / "state.json").read_text())
    del state["run"]
    (path / "state.json").write_text(json.dumps(state))
    sign(path / "state.json")
    _, err = call(*TRAIN, "--out", str(trained), code=2)
    assert "does not fit this run: model.safetensors: size mismatch" in err
    assert ": complete" not in err


# -- a full disk -------------------------------------------------------------------------------


def limited(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own; a limit on file sizes is as good as a full disk."""
    command = [sys.executable, "-c", program, *args]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_full_disk_is_reported_once(tmp_path):
    """A buffered log would try to write the same row again on closing, and hide the first error."""
    program = """if True:
        import resource, sys
        from pathlib import Path
        from nps.errors import RunFailed
        from nps.training.log import MetricLog
        log = MetricLog(Path(sys.argv[1]), 0)
        log.write({"epoch": 1, "step": 1})
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.length + 5, log.length + 5))
        try:
            log.write({"epoch": 2, "step": 2})
        except RunFailed as error:
            print(error)
        log.close()
        print("closed")"""
    done = limited(program, str(tmp_path / "metrics.jsonl"))
    path = tmp_path / "metrics.jsonl"
    assert done.stdout == f"cannot write {path}: File too large\nclosed\n", done.stderr
    assert Run(tmp_path).metrics() == [{"epoch": 1, "step": 1}]
    MetricLog(path, len('{"epoch": 1, "step": 1}\n')).close()
    assert path.read_text().count("\n") == 1


def test_a_training_on_a_full_disk_ends_in_one_line(tmp_path):
    program = """if True:
        import resource, sys
        from nps.cli import main
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        main(sys.argv[1:])"""
    args = ["train", "arithmetic", *SMALL, "--epochs=30", "--out", str(tmp_path / "run")]
    done = limited(program, *args)
    path = tmp_path / "run/metrics.jsonl"
    assert done.returncode == 1
    assert done.stderr == f"nps: error: cannot write {path}: File too large\n"
    assert path.stat().st_size == 3000
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


# -- the other files ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "provenance.json"])
@pytest.mark.parametrize("data", [b"[[1]]", b"3", b"[" * 100_000, b"\xff", b'{"schema": "1"}'])
def test_json_that_is_something_else_is_one_line(trained, name, data):
    (trained / name).write_bytes(data)
    for command in (
        ("eval", str(trained)),
        ("inspect", str(trained)),
        (*TRAIN, "--out", str(trained)),
    ):
        _, err = call(*command, code=2)
        assert f"{name}: damaged" in err
        assert err.count("\n") == 1
    assert (trained / name).read_bytes() == data


def test_a_sweep_is_a_table_too(tmp_path):
    """Its folders are not named after presets."""
    call(*TRAIN, "--out", str(tmp_path / "rules=4/seed-0"))
    call("eval", str(tmp_path / "rules=4/seed-0"))
    assert "| rules=4 | – |" in call("table", str(tmp_path))[0]


@pytest.mark.parametrize(
    "change", [{"mse": None}, {"table": [["x"]]}, {"rules": [{}]}, {"segregation": "high"}]
)
def test_a_test_that_is_damaged_is_named(trained, change):
    call("eval", str(trained))
    path = trained / "test.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    _, err = call("table", str(trained), code=2)
    assert f"{path}: damaged, {next(iter(change))}" in err
    assert f"nps eval {trained}" in err


def test_the_manifest_is_what_the_files_are(half):
    """The helper of these tests signs as a checkpoint is signed."""
    path = newest_of(half)
    before = (path / "manifest.json").read_text()
    sign(path / "state.json")
    assert json.loads((path / "manifest.json").read_text()) == json.loads(before)
    digest = hashlib.sha256((path / "state.json").read_bytes()).hexdigest()
    assert digest in before
