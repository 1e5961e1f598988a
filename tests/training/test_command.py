"""`nps train` and the run folder: what is the same run, what is refused, what is never lost."""

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import nps
from nps.errors import UserError
from nps.experiments.arithmetic import ArithmeticTask
from nps.training import checkpoint, clearing
from nps.training.config import Settings
from nps.training.run import Run
from tests.ordinary_user import as_ordinary_user
from tests.test_cli import SMALL, call
from tests.training.tools import STEPS, files, go

TRAIN = ("train", "arithmetic", *SMALL, "--epochs=2")


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


# -- identity ---------------------------------------------------------------------------------


def test_precision_is_part_of_the_identity(tmp_path):
    out = str(tmp_path / "run")
    call(*TRAIN, "--out", out)
    assert config_of(tmp_path / "run")["precision"] == "float32"
    before = files(tmp_path / "run")
    for precision in ("bf16", "tf32"):
        _, err = call(*TRAIN, "--out", out, f"--precision={precision}", code=2)
        assert f"precision: float32 -> {precision}" in err
    assert files(tmp_path / "run") == before
    call(*TRAIN, "--out", out, "--precision=bf16", "--fresh")
    assert config_of(tmp_path / "run")["precision"] == "bf16"


@pytest.mark.parametrize("recorded", ["bf16", None])
def test_a_run_from_before_has_the_precision_of_its_provenance(tmp_path, recorded):
    call(*TRAIN, "--out", str(tmp_path))
    saved = config_of(tmp_path)
    del saved["precision"]
    (tmp_path / "config.json").write_text(json.dumps(saved))
    sessions = [{**s, "precision": recorded} for s in Run(tmp_path).provenance()]
    if recorded is None:
        for entry in sessions:
            del entry["precision"]
    (tmp_path / "provenance.json").write_text(json.dumps(sessions))
    own, other = (recorded, "float32") if recorded else ("float32", "bf16")
    _, err = call(*TRAIN, "--out", str(tmp_path), f"--precision={own}")
    assert "complete" in err
    _, err = call(*TRAIN, "--out", str(tmp_path), f"--precision={other}", code=2)
    assert f"precision: {own} -> {other}" in err


def test_a_run_from_before_newer_fields_goes_on(tmp_path, monkeypatch):
    """Absent fields of the loop have their defaults; another value is another run."""
    go_part(tmp_path, monkeypatch, 7)
    saved = config_of(tmp_path)
    for name in ("warmup_steps", "weight_decay", "ema_decay"):
        del saved["config"][name]
    (tmp_path / "config.json").write_text(json.dumps(saved))
    _, err = call(*TRAIN, "--out", str(tmp_path), "--weight-decay=0.1", code=2)
    assert "weight_decay: 0.0 -> 0.1" in err
    _, err = call(*TRAIN, "--out", str(tmp_path))
    assert "resuming after step 7" in err


def go_part(folder, monkeypatch, steps, *more, code=143):
    """`nps train`, stopped and saved after some steps."""
    with monkeypatch.context() as patch:
        stopping = functools.partial(Settings, stop_at=steps)
        patch.setattr("nps.training.loop.Settings", stopping)
        return call(*TRAIN, "--out", str(folder), *more, code=code)


def test_a_moving_average_is_what_a_run_loads(tmp_path):
    """The best and the last model of a run that keeps one; without it, the weights themselves."""
    call(*TRAIN, "--out", str(tmp_path), "--ema-decay=0.5")
    saved = checkpoint.newest(tmp_path / "checkpoints", print)
    for which, group in (("best", "best"), ("last", "ema")):
        loaded = nps.load(tmp_path, which=which).model.state_dict()
        for name, tensor in saved.tensors[group].items():
            assert torch.equal(loaded[name], tensor)
    name = "layer.rules.weight_in"
    assert not torch.equal(saved.tensors["ema"][name], saved.tensors["model"][name])
    assert saved.weights("last") is saved.tensors["ema"]
    del saved.tensors["ema"]
    assert saved.weights("last") is saved.tensors["model"]


@pytest.mark.parametrize("seeds", [1, 3])
def test_every_model_is_built_once(tmp_path, monkeypatch, seeds):
    built, make_model = [], ArithmeticTask.make_model

    def counted(self, seed):
        built.append(seed)
        return make_model(self, seed)

    monkeypatch.setattr(ArithmeticTask, "make_model", counted)
    call(*TRAIN, "--out", str(tmp_path / "run"), f"--seeds={seeds}")
    assert sorted(built) == list(range(seeds))


# -- --fresh and --out --------------------------------------------------------------------------


@pytest.mark.parametrize("config", [None, '{"theme": "dark"}', "not JSON"])
def test_fresh_deletes_nothing_of_a_folder_that_is_not_a_run(tmp_path, config):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/thesis.pt").write_text("years of work")
    (tmp_path / "figures").mkdir()
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    before = sorted(tmp_path.rglob("*"))
    _, err = call(*TRAIN, "--out", str(tmp_path), "--fresh", code=2)
    assert "is not a run of nps" in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_fresh_in_a_new_folder_and_beside_files_of_others(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for _ in range(2):
        call(*TRAIN, "--out", str(tmp_path), "--fresh")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".cleared*"))


@pytest.mark.parametrize("out", ["", " "])
def test_an_empty_out_is_refused(tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    _, err = call(*TRAIN, "--out", out, "--fresh", code=2)
    assert "--out: got an empty path" in err
    assert not list(tmp_path.iterdir())


def test_fresh_refuses_a_symbolic_link_before_anything_changes(tmp_path):
    """It would go on from the old weights behind it."""
    run = tmp_path / "run"
    call(*TRAIN, "--out", str(run))
    shutil.move(run / "checkpoints", tmp_path / "large-disk")
    (run / "checkpoints").symlink_to(tmp_path / "large-disk")
    before = config_of(run), (run / "metrics.jsonl").read_bytes()
    _, err = call(*TRAIN, "--out", str(run), "--rules=5", "--fresh", code=2)
    assert "checkpoints is a symbolic link" in err
    assert (config_of(run), (run / "metrics.jsonl").read_bytes()) == before


def fail_for(path, function):
    """os.rename or os.replace, which fails from or to one path."""

    def fail(source, target):
        if source == path and ".cleared" in str(target):
            raise PermissionError(1, "Operation not permitted")
        if target == path and function.__name__ == "replace":
            raise PermissionError(1, "Operation not permitted")
        function(source, target)

    return fail


@pytest.mark.parametrize("stuck", ["checkpoints/step-00000020", "config.json", "provenance.json"])
def test_fresh_clears_wholly_or_not_at_all(tmp_path, monkeypatch, stuck):
    run = tmp_path / "run"
    call(*TRAIN, "--out", str(run))
    assert (run / stuck).exists()
    before = files(run), config_of(run)
    with monkeypatch.context() as patch:
        for function in (os.rename, os.replace):
            patch.setattr(os, function.__name__, fail_for(run / stuck, function))
        code = 1 if stuck == "config.json" else 2
        _, err = call(*TRAIN, "--out", str(run), "--rules=5", "--fresh", code=code)
    assert "Operation not permitted" in err
    assert (files(run), config_of(run)) == before
    assert not list(run.glob(".cleared*"))


@pytest.mark.parametrize("moves", [0, 3, 5, 6])
def test_a_process_killed_in_fresh_has_changed_nothing_or_all(tmp_path, moves):
    """The next one puts the files back, or deletes the rest of them."""
    run = tmp_path / "run"
    call(*TRAIN, "--out", str(run), "--save-every=0")
    before, old = sorted(run.rglob("*")), files(run)
    script = f"""
        import os
        from nps.cli import main
        left = [{moves}]
        def dying(function):
            def call(*given):
                if "{run}" in str(given[0]):
                    left[0] -= 1
                if left[0] < 0:
                    os._exit(9)
                return function(*given)
            return call
        os.rename, os.replace = dying(os.rename), dying(os.replace)
        main({[*TRAIN, "--out", str(run), "--rules=5", "--fresh"]!r})
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    assert subprocess.run(command, capture_output=True).returncode == 9
    if config_of(run)["config"]["rules"] != 5:
        call(*TRAIN, "--out", str(run), "--rules=6", code=2)  # refused before it may write
        call(*TRAIN, "--out", str(run))
        assert (sorted(run.rglob("*")), files(run)) == (before, old)
    else:
        call(*TRAIN, "--out", str(run), "--rules=5")
    assert not list(run.glob(".cleared*"))


THEIRS = ("checkpoints/thesis.pt", "figures/thesis.pdf", "test-set.json", "notes.txt", "test.jsonl")
OURS = (
    *("figures/curves.png", "figures/usage-epoch-0002.png", "test-on-x.json", "test-last.json"),
    *("checkpoints/damaged-step-00000007", "tensorboard/events.out.tfevents.1.x.1.0"),
)


def test_fresh_deletes_nothing_of_the_user_inside_a_run(tmp_path):
    call(*TRAIN, "--out", str(tmp_path))
    for name in (*THEIRS, *OURS):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("some work")
    call(*TRAIN, "--out", str(tmp_path), "--rules=5", "--epochs=1", "--fresh")
    assert all((tmp_path / name).read_text() == "some work" for name in THEIRS)
    assert not [name for name in OURS if (tmp_path / name).exists()]
    assert checkpoint.steps(tmp_path / "checkpoints") == [10]
    assert not (tmp_path / "tensorboard").exists()


def test_the_figures_of_inspect_are_known():
    """Those of experiments' inspect(), found in the source; reports of many runs go elsewhere."""
    root = Path(nps.__file__).parent / "experiments"
    names = set()
    for path in root.rglob("*.py"):
        if path.name in ("inspect.py", "pictures.py"):
            names |= set(re.findall(r"Figure\(\s*f?\"([^\"{]+)", path.read_text()))
    assert names == set(clearing.INSPECTED)


def test_figures_of_inspect_do_not_keep_a_run_from_a_fresh_start(tmp_path):
    call(*TRAIN, "--out", str(tmp_path))
    figures = tmp_path / "figures"
    figures.mkdir(exist_ok=True)
    names = [f"{n}test" if n.endswith("-") else n for n in clearing.INSPECTED]
    for name in names:
        for end in ("png", "gif"):
            (figures / f"{name}.{end}").write_bytes(b"a picture")
    call(*TRAIN, "--out", str(tmp_path), "--fresh")
    assert not [path for path in figures.glob("*") if path.stem in names]


@pytest.mark.parametrize(
    "name",
    [
        *("metrics.jsonl", "report.html", "provenance.json", "checkpoints/thesis.pt"),
        *("figures/fig1.pdf", "test-on-x.json", "not-finite.json"),
    ],
)
@pytest.mark.parametrize("fresh", [[], ["--fresh"]])
def test_a_folder_with_files_of_others_is_not_trained_into(tmp_path, name, fresh):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine\n")
    before = sorted(tmp_path.rglob("*"))
    _, err = call(*TRAIN, "--out", str(tmp_path), *fresh, code=2)
    assert f"is not a run of nps, its {name.split('/')[0]} stay" in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / name).read_text() == "mine\n"


@pytest.mark.parametrize("content", [b"held by make", b"\xbd7"])
def test_a_lock_of_another_program_is_not_overwritten(tmp_path, content):
    (tmp_path / ".lock").write_bytes(content)
    _, err = call(*TRAIN, "--out", str(tmp_path), code=2)
    assert ".lock: not a lock of nps" in err
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert (tmp_path / ".lock").read_bytes() == content


def test_empty_folders_are_not_in_the_way(tmp_path):
    (tmp_path / "large-disk").mkdir()
    (tmp_path / "run/figures").mkdir(parents=True)
    (tmp_path / "run/checkpoints").symlink_to(tmp_path / "large-disk")
    call(*TRAIN, "--out", str(tmp_path / "run"))
    assert checkpoint.steps(tmp_path / "large-disk")


# -- a training that is refused leaves nothing ----------------------------------------------------


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("fresh", [[], ["--fresh"]])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([f"--seed={10**30}"], f"seed: got {10**30}, expected a number of at most"),
        ([f"--seed={-(2**63)}"], "expected a number of at most"),
        ([f"--validate-every={10**30}"], "validate_every: got"),
    ],
)
def test_numbers_that_cannot_be_stored(tmp_path, there, fresh, flags, message):
    out = tmp_path / "new/run"
    if there:
        out.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    _, err = call(*TRAIN, "--out", str(out), *flags, *fresh, code=2)
    assert message in err
    assert sorted(tmp_path.rglob("*")) == before
    call(*TRAIN, "--out", str(out), *fresh)


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("error", [UserError("refused"), MemoryError(), KeyboardInterrupt()])
def test_a_training_that_fails_before_its_first_step_leaves_nothing(
    tmp_path, monkeypatch, error, seeds
):
    def fail(*given):
        raise error

    monkeypatch.setattr("nps.training.step.Step.__call__", fail)
    with contextlib.suppress(KeyboardInterrupt, AssertionError):
        call(*TRAIN, "--out", str(tmp_path / "new/run"), f"--seeds={seeds}", "--tensorboard")
    assert not list(tmp_path.iterdir())


def test_a_refused_training_leaves_a_run_as_it_was(tmp_path, monkeypatch):
    go_part(tmp_path, monkeypatch, 12)
    before = files(tmp_path)
    monkeypatch.setattr("nps.training.step.Step.__call__", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call(*TRAIN, "--out", str(tmp_path))
    assert files(tmp_path) == before
    assert config_of(tmp_path)


def test_names_with_newlines_are_one_line(tmp_path):
    run = tmp_path / "a\nb"
    for command in ([*TRAIN, "--out", str(run)], ["eval", str(run)], ["inspect", str(run)]):
        out, _ = call(*command)
        assert "a\nb" not in out
    assert "a\\nb: trained" in call(*TRAIN, "--out", str(run))[0]
    assert r"a\nb" in call("eval", str(run))[0].replace("\n", "")


# -- links ----------------------------------------------------------------------------------------


def test_a_dangling_link_is_refused_before_the_training(tmp_path, monkeypatch):
    for new in (True, False):
        run = tmp_path / f"run-{new}"
        run.mkdir()
        if not new:
            go_part(run, monkeypatch, 12)
            shutil.rmtree(run / "checkpoints")
        (run / "checkpoints").symlink_to(tmp_path / "not-mounted")
        _, err = call(*TRAIN, "--out", str(run), code=2)
        assert "checkpoints" in err
        assert new or "checkpoints: a symbolic link to a folder that is not there" in err


def test_a_log_that_is_a_link_is_refused_in_these_words(tmp_path, monkeypatch):
    go_part(tmp_path, monkeypatch, 12)
    (tmp_path / "metrics.jsonl").rename(tmp_path / "elsewhere")
    (tmp_path / "metrics.jsonl").symlink_to("elsewhere")
    sessions = Run(tmp_path).provenance()
    _, err = call(*TRAIN, "--out", str(tmp_path), code=2)
    assert "metrics.jsonl: a symbolic link, expected the file itself" in err
    assert Run(tmp_path).provenance() == sessions


@pytest.mark.parametrize("step", [6, 8])
def test_a_checkpoint_that_is_a_link_is_refused(tmp_path, monkeypatch, step):
    """It would never be pruned. --fresh removes the link, and not what it points to."""
    for stop in (6, 8):
        go_part(tmp_path / "run", monkeypatch, stop)
    path = tmp_path / f"run/checkpoints/step-{step:08d}"
    path.rename(tmp_path / path.name)
    path.symlink_to(tmp_path / path.name)
    before = files(tmp_path / "run")
    _, err = call(*TRAIN, "--out", str(tmp_path / "run"), code=2)
    assert f"{path}: a symbolic link, expected the folder itself; --fresh starts over" in err
    assert files(tmp_path / "run") == before
    call("eval", str(tmp_path / "run"), code=2 if step == 8 else 0)
    call(*TRAIN, "--out", str(tmp_path / "run"), "--fresh")
    assert (tmp_path / path.name / "manifest.json").exists()


def test_a_stack_is_cleared_wholly_or_not_at_all(tmp_path):
    call(*TRAIN, "--out", str(tmp_path), "--seeds=2")
    (tmp_path / "seed-1/config.json").write_text("{}")
    before = files(tmp_path / "seed-0")
    call(*TRAIN, "--out", str(tmp_path), "--seeds=2", "--fresh", code=2)
    assert files(tmp_path / "seed-0") == before


# -- checkpoints that cannot be used ------------------------------------------------------------


def spoil(path):
    path.write_bytes(path.read_bytes()[:-1])


def test_the_checkpoint_just_written_is_never_deleted(tmp_path):
    """Both damaged; the next is of an earlier step, and is there to go on from."""
    go(tmp_path / "whole")
    for stop in (12, 14):
        go(tmp_path / "run", stop_at=stop)
    folder = tmp_path / "run/checkpoints"
    for path in folder.glob("*/model.safetensors"):
        spoil(path)
    task = go(tmp_path / "run", stop_at=3)
    assert checkpoint.steps(folder) == [3]
    aside = sorted(path.name for path in folder.glob("damaged-*"))
    assert aside == ["damaged-step-00000012", "damaged-step-00000014"]
    assert "set aside as damaged-step-00000014" in task.said[0]
    go(tmp_path / "run")
    last = f"checkpoints/step-{STEPS:08d}/model.safetensors"
    assert files(tmp_path / "run")[last] == files(tmp_path / "whole")[last]


def test_pruning_keeps_the_one_just_written(tmp_path):
    for step in (8, 9, 2):
        saved = checkpoint.Checkpoint(step, {"model": {}}, {})
        checkpoint.save(tmp_path, saved, keep=2)
    assert checkpoint.steps(tmp_path) == [2, 9]


def test_a_newer_schema_stops_the_training(tmp_path, monkeypatch):
    go_part(tmp_path, monkeypatch, 12)
    path = tmp_path / "checkpoints/step-00000012/manifest.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 9'))
    before = files(tmp_path)
    _, err = call(*TRAIN, "--out", str(tmp_path), code=2)
    assert "schema 9, this nps reads up to 1" in err
    assert "--fresh" in err
    assert files(tmp_path) == before


@pytest.mark.parametrize("where", ["checkpoints", "checkpoints/step-00000012/model.safetensors"])
def test_a_checkpoint_without_permission_stops_the_training(tmp_path, monkeypatch, where):
    go_part(tmp_path, monkeypatch, 12)
    before = files(tmp_path)
    (tmp_path / where).chmod(0o000)
    with as_ordinary_user():
        _, err = call(*TRAIN, "--out", str(tmp_path), code=2)
    (tmp_path / where).chmod(0o755)
    assert "Permission denied" in err
    assert "--fresh" in err
    assert files(tmp_path) == before


def test_what_a_killed_save_left_is_removed(tmp_path):
    go(tmp_path, stop_at=6)
    left = tmp_path / "checkpoints/.tmp-step-00000009-4711"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    go(tmp_path, stop_at=8)
    assert not left.exists()


# -- data ---------------------------------------------------------------------------------------


def test_data_replaced_after_a_kill_are_noticed(tmp_path):
    """The fingerprint is on disk before the first step."""
    episodes, out = tmp_path / "my.npz", tmp_path / "run"
    save_episodes(episodes, seed=0)
    flags = ["train", "world-model", "--data", str(episodes), "--out", str(out), "--slots=2"]
    flags += ["--extractor=small", "--hidden-dim=16", "--width=4", "--batch-size=30"]
    flags += ["--epochs=2000", "--validate-every=1000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "nps", *flags, "--save-every=0"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while not checkpoint.steps(out / "checkpoints"):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert Run(out).provenance()[0]["data"]
    save_episodes(episodes, seed=1)
    _, err = call(*flags, code=2)
    assert "its data have changed;" in err


def save_episodes(path, seed):
    draw = np.random.default_rng(seed)
    count, length = 30, 12
    np.savez(
        path,
        obs=draw.integers(0, 256, (count * length, 20, 20, 3), dtype=np.uint8),
        action=draw.integers(0, 3, count * length),
        episode_end=np.arange(count * length) % length == length - 1,
    )


def test_run_refuses_nothing_it_should_not(tmp_path):
    """Clearing a folder that is not there, or empty, is no mistake."""
    Run(tmp_path / "nothing").require_clearable()
    Run(tmp_path).require_clearable()
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match=r"its metrics\.jsonl stay"):
        Run(tmp_path).require_clearable()
