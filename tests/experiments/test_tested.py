"""test.json is about the run's own best model; every other test has a file of its own."""

import json
import os
import shlex
import shutil

import pytest

import nps
from nps.experiments.tested import metrics_path, mismatch
from nps.training.checkpoint import Checkpoint
from nps.training.run import Run
from tests.experiments.runs import write_run
from tests.test_cli import SMALL, call
from tests.training.test_command import go_part

OLD, NEW = "step-00000010", "step-00000020"


@pytest.fixture(scope="module")
def _trained(tmp_path_factory):
    """A tested run with two checkpoints, whose best model is not the last one's."""
    run = tmp_path_factory.mktemp("runs") / "arithmetic/seed-0"
    flags = [*SMALL, "--epochs=2", "--save-every=0", "--learning-rate=0.01"]
    call("train", "arithmetic", *flags, "--out", str(run))
    call("eval", str(run))
    return run


@pytest.fixture
def run(_trained, tmp_path):
    folder = tmp_path / "arithmetic/seed-0"
    shutil.copytree(_trained, folder)
    return folder


def metrics_of(run):
    return json.loads((run / "test.json").read_text())


def set_test(run, **changes):
    (run / "test.json").write_text(json.dumps({**metrics_of(run), **changes}))


@pytest.mark.parametrize(
    ("checkpoint", "flags", "name"),
    [
        (OLD, [], f"test-{OLD}.json"),
        (OLD, ["--which=last"], f"test-{OLD}-last.json"),
        (None, ["--which=last"], "test-last.json"),
    ],
)
def test_another_model_does_not_overwrite_it(run, checkpoint, flags, name):
    before, table = (run / "test.json").read_bytes(), call("table", str(run.parent.parent))[0]
    path = run / "checkpoints" / checkpoint if checkpoint else run
    _, err = call("eval", str(path), *flags)
    assert f"written to {run / name}; tables show test.json" in err
    found = json.loads((run / name).read_text())
    assert found["which"] == ("last" if flags else "best")
    assert found["step"] == (10 if checkpoint else 20)
    assert (run / "test.json").read_bytes() == before
    assert call("table", str(run.parent.parent))[0] == table


@pytest.mark.parametrize("flags", [[], ["--which=last"], ["--device", "cpu", "--which", "last"]])
def test_the_printed_command_shows_all_numbers_of_the_same_test(run, flags):
    few, _ = call("eval", str(run), *flags)
    (line,) = [line for line in few.splitlines() if "All numbers: " in line]
    words = shlex.split(line.split(": ", 1)[1])
    assert words == ["nps", "eval", str(run), *flags, "--all"]
    every, _ = call(*words[1:])
    assert every.splitlines()[0] == few.splitlines()[0]  # of the same model


def test_the_newest_checkpoint_by_its_name_is_the_same_model(run):
    before = (run / "test.json").read_bytes()
    (run / "test.json").unlink()
    _, err = call("eval", str(run / "checkpoints" / NEW))
    assert err == ""
    assert (run / "test.json").read_bytes() == before


def test_names(tmp_path):
    run = Run(tmp_path)
    for step in (10, 20):
        (run.checkpoints / f"step-{step:08d}").mkdir(parents=True)

    def name(step, which, on=None):
        return metrics_path(run, Checkpoint(step, {}, {}), which, on).name

    assert name(20, "best") == "test.json"
    assert name(20, "best", "data/x.h5") == "test-on-x.json"
    assert name(20, "last", "unobserved") == "test-last-on-unobserved.json"
    assert name(10, "last", "x") == f"test-{OLD}-last-on-x.json"


def test_two_files_of_one_name_have_a_file_each(tmp_path, monkeypatch):
    run, tested = Run(tmp_path), Checkpoint(20, {}, {})
    monkeypatch.chdir(tmp_path)

    def write(on):
        path = metrics_path(run, tested, "best", on)
        path.write_text(json.dumps({"on": on, "on_path": os.path.abspath(on)}))
        return path.name

    (run.checkpoints / "step-00000020").mkdir(parents=True)
    for _ in range(2):
        assert write("a/x.npz") == "test-on-x.json"
        assert write("b/x.npz") == "test-on-x-2.json"
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert write("x.npz") == "test-on-x.json"
    (tmp_path / "test-on-x.json").write_text("not ours")
    assert write("x.npz") == "test-on-x-3.json"
    (tmp_path / "test-on-y.json").write_text('{"on": "c/y.npz"}')  # from before on_path
    assert write("d/y.npz") == "test-on-y-2.json"
    assert write("c/y.npz") == "test-on-y.json"


def test_a_run_before_its_first_validation_has_no_best_model(tmp_path, monkeypatch, recwarn):
    go_part(tmp_path, monkeypatch, 7)
    out, err = call("eval", str(tmp_path))
    assert f"{tmp_path}: not validated yet, so there is no best model; using the last" in err
    assert ": last model, step 7" in out
    assert not (tmp_path / "test.json").exists()
    assert json.loads((tmp_path / "test-last.json").read_text())["which"] == "last"
    run = nps.load(tmp_path)
    assert (run.which, run.step) == ("last", 7)
    assert "last model of step 7" in repr(run)


def test_fresh_deletes_all_of_them(run):
    call("eval", str(run), "--which=last")
    call("eval", str(run / "checkpoints" / OLD))
    call("train", "arithmetic", *SMALL, "--epochs=1", "--out", str(run), "--fresh")
    assert not list(run.glob("test*.json"))


# -- tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"which": "last"}, "of the last model, expected the best on validation"),
        ({"step": 10}, "of step 10, expected step 20, the newest of the run"),
    ],
)
def test_tables_refuse_metrics_of_another_model(run, tmp_path, changes, message):
    set_test(run, **changes)
    add = ("table", "--add", str(run), "--to", str(tmp_path / "results"))
    for command in (("table", str(run.parent.parent)), add):
        out, err = call(*command, code=2)
        assert out == ""
        assert f"test.json: {message}" in err
        assert f"test it again: nps eval {run}" in err
        assert err.count("\n") == 1
    assert not (tmp_path / "results/runs.jsonl.xz").exists()
    assert "| 1 " in call("table", str(run.parent.parent), "--list")[0]
    call("eval", str(run))
    call("table", str(run.parent.parent))


def test_several_are_counted(run):
    shutil.copytree(run, run.with_name("seed-1"))
    for folder in (run, run.with_name("seed-1")):
        set_test(folder, which="last")
    assert "(and 1 more)" in call("table", str(run.parent.parent), code=2)[1]


def test_metrics_from_before_these_keys_are_shown(run):
    table = call("table", str(run.parent.parent))[0]
    metrics = metrics_of(run)
    del metrics["which"], metrics["step"]
    (run / "test.json").write_text(json.dumps(metrics))
    assert call("table", str(run.parent.parent))[0] == table


def test_without_checkpoints_the_log_has_the_newest_step(tmp_path):
    curve = [{"epoch": 1, "step": 10}, {"epoch": 2, "step": 20}]
    folder = write_run(tmp_path / "run", curve=curve)
    assert mismatch(Run(folder), {"which": "best", "step": 20}) == ""
    assert "expected step 20" in mismatch(Run(folder), {"which": "best", "step": 10})
    (folder / "metrics.jsonl").unlink()
    assert mismatch(Run(folder), {"which": "best", "step": 10}) == ""


def test_a_sweep_tests_again_what_is_off(tmp_path):
    flags = ["--epochs=1", *SMALL, "--out", str(tmp_path), "--workers=1"]
    call("sweep", "arithmetic", *flags)
    (run,) = tmp_path.glob("*/seed-0")
    mse = metrics_of(run)["mse"]
    set_test(run, step=3, mse=99.0)
    call("sweep", "arithmetic", *flags)
    assert metrics_of(run)["mse"] == mse
    points = json.loads((tmp_path / "table.json").read_text())["points"]
    assert points[0]["metrics"]["mse"]["values"] == [mse]


# -- a damaged newest checkpoint ----------------------------------------------------------------


def test_a_fall_back_is_said_and_has_a_file_of_its_own(run):
    before = (run / "test.json").read_bytes()
    (run / "checkpoints" / NEW / "model.safetensors").write_bytes(b"")
    line = f"{NEW}: damaged, model.safetensors has 0 bytes"
    for command in ("eval", "inspect"):
        _, err = call(command, str(run))
        (said,) = (each for each in err.splitlines() if "damaged" in each)
        assert line in said
        assert f"using {OLD} instead" in said
    assert (run / "test.json").read_bytes() == before
    assert json.loads((run / f"test-{OLD}.json").read_text())["step"] == 10
    with pytest.warns(UserWarning, match=f"{line}.*; using {OLD} instead") as warned:
        nps.load(run)
    assert len(warned) == 1
    assert warned[0].filename == __file__


def test_nothing_is_said_when_the_newest_is_whole(run, recwarn):
    nps.load(run)
    assert call("eval", str(run))[1] == ""
    assert len(recwarn) == 0
