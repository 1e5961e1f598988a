"""A checkpoint belongs to one run: elsewhere it is refused by name, and nothing changes."""

import hashlib
import json
import shutil

import pytest
import torch

import nps
from nps.errors import UserError
from nps.experiments import EXPERIMENTS
from nps.training import checkpoint
from nps.training.identity import PLACES, changes, signature
from nps.training.run import Run, find_checkpoint, run_at
from tests.test_cli import SMALL, call
from tests.training.tools import files

TRAIN = ("train", "arithmetic", *SMALL, "--epochs=2")
LAST = "checkpoints/step-00000020"


def snapshot(folder):
    """Every file of a folder but its lock."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def train(folder, *more):
    call(*TRAIN, "--out", str(folder), *more)
    return folder


def put(source, target):
    shutil.rmtree(target)
    shutil.copytree(source, target)


def edit_state(path, change):
    """Change state.json of a checkpoint, and its manifest to match."""
    state = json.loads((path / "state.json").read_text())
    change(state)
    data = json.dumps(state).encode()
    (path / "state.json").write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_text())
    digest = hashlib.sha256(data).hexdigest()
    manifest["files"]["state.json"] = {"bytes": len(data), "sha256": digest}
    (path / "manifest.json").write_text(json.dumps(manifest))


def edit_config(run, **fields):
    saved = json.loads((run / "config.json").read_text())
    saved["config"] |= fields
    (run / "config.json").write_text(json.dumps(saved))


COMMANDS = {
    "train": lambda run: call(*TRAIN, "--out", str(run), code=2),
    "eval": lambda run: call("eval", str(run), code=2),
    "eval of a checkpoint": lambda run: call("eval", str(run / LAST), code=2),
    "inspect": lambda run: call("inspect", str(run), code=2),
}


@pytest.mark.parametrize(
    ("flags", "difference"),
    [(["--seed=1"], "seed: 1 -> 0"), (["--rules=6"], "rules: 6 -> 4"), ([], "id: ")],
    ids=["seed", "rules", "same settings"],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, flags, difference):
    run, other = train(tmp_path / "run"), train(tmp_path / "other", *flags)
    put(other / LAST, run / LAST)
    before = snapshot(run)
    for command in COMMANDS.values():
        _, err = command(run)
        assert f"{LAST}: a checkpoint of another run (" in err
        assert difference in err
        assert err.count("\n") == 1
        assert snapshot(run) == before
    with pytest.raises(UserError, match="a checkpoint of another run"):
        nps.load(run)
    assert not Run(run).complete(Run(run).read())


def test_a_run_copied_or_moved_as_a_whole_stays_valid(tmp_path):
    run = train(tmp_path / "run", "--save-every=0")
    shutil.rmtree(run / LAST)  # not complete: there is something to resume
    shutil.copytree(run, tmp_path / "copy")
    run.rename(tmp_path / "moved")
    for folder in (tmp_path / "copy", tmp_path / "moved"):
        _, err = call(*TRAIN, "--out", str(folder))
        assert "resuming after step 10" in err
        call("eval", str(folder))
    assert files(tmp_path / "copy") == files(tmp_path / "moved")


def test_a_checkpoint_without_an_identity_is_read_as_before(tmp_path):
    run = train(tmp_path / "run")
    weights = nps.load(run).model.state_dict()
    edit_state(run / LAST, lambda state: state.pop("run"))
    for name, tensor in nps.load(run).model.state_dict().items():
        assert torch.equal(tensor, weights[name])
    assert "complete" in call(*TRAIN, "--out", str(run))[1]


@pytest.mark.parametrize("command", ["train", "eval", "inspect"])
def test_without_an_identity_the_shapes_must_fit(tmp_path, command):
    run = train(tmp_path / "run", "--save-every=0")
    shutil.rmtree(run / LAST)
    train(tmp_path / "other", "--rules=6", "--save-every=0")
    put(tmp_path / "other/checkpoints/step-00000010", run / "checkpoints/step-00000010")
    edit_state(run / "checkpoints/step-00000010", lambda state: state.pop("run"))
    before = snapshot(run)
    _, err = COMMANDS[command](run)
    assert "size mismatch for layer.rules" in err
    assert err.splitlines()[-1].startswith("nps: error: ")
    assert "Traceback" not in err
    assert snapshot(run) == before


def test_a_config_that_was_edited_is_not_the_one_of_the_checkpoints(tmp_path):
    """No shape changes with it: only the numbers would be wrong."""
    run = train(tmp_path / "run", "--temperature=2.0")
    edit_config(run, temperature=1.0)
    assert "temperature: 2.0 -> 1.0" in call("eval", str(run), code=2)[1]


def test_a_foreign_checkpoint_stops_the_training_before_damaged_ones_are_moved(tmp_path):
    run = train(tmp_path / "run", "--save-every=0")
    other = train(tmp_path / "other", "--seed=1", "--save-every=0")
    put(other / "checkpoints/step-00000010", run / "checkpoints/step-00000010")
    (run / LAST / "model.safetensors").write_bytes(b"")
    (run / "checkpoints/.tmp-step-00000030-1").mkdir()
    before = sorted(run.rglob("*"))
    _, err = call(*TRAIN, "--out", str(run), code=2)
    assert "step-00000010: a checkpoint of another run" in err
    assert "--fresh starts over" in err
    assert sorted(run.rglob("*")) == before


def test_an_id_is_made_once(tmp_path):
    ids = set()
    call(*TRAIN, "--out", str(tmp_path), "--seeds=2")
    for _ in range(2):
        ids |= {Run(tmp_path / f"seed-{s}").read()["id"] for s in (0, 1)}
        call(*TRAIN, "--out", str(tmp_path), "--seeds=2")
    assert len(ids) == 2
    call(*TRAIN, "--out", str(tmp_path), "--seeds=2", "--fresh")
    assert not ids & {Run(tmp_path / f"seed-{s}").read()["id"] for s in (0, 1)}


def test_a_run_from_before_ids_goes_on_without_one(tmp_path):
    train(tmp_path, "--save-every=0")
    shutil.rmtree(tmp_path / LAST)
    saved = json.loads((tmp_path / "config.json").read_text())
    theirs = saved.pop("id")
    (tmp_path / "config.json").write_text(json.dumps(saved))
    edit_state(tmp_path / "checkpoints/step-00000010", lambda state: state.pop("run"))
    call(*TRAIN, "--out", str(tmp_path))
    assert "id" not in Run(tmp_path).read()
    edit_state(tmp_path / LAST, lambda state: state["run"].update(id=theirs))
    assert f"id: {theirs} -> (absent)" in call("eval", str(tmp_path), code=2)[1]


@pytest.mark.parametrize("value", ["text", {}, {"config": 3}])
def test_an_identity_that_is_none_is_damage(tmp_path, value):
    path = checkpoint.save(tmp_path, checkpoint.Checkpoint(1, {"model": {}}, {}), keep=1)
    edit_state(path, lambda state: state.update(run=value))
    with pytest.raises(checkpoint.Damaged, match=r"state\.json: damaged, run"):
        checkpoint.load(path)


def test_changes_ignore_ids_unless_asked_and_know_renamed_and_newer_fields():
    old = {"id": "a", "experiment": "mnist", "seed": 0, "config": {"alone_until": 0.5}}
    new = {"id": "b", "experiment": "mnist", "seed": 0, "config": {"context_from": 0.5}}
    assert changes(old, new) == []
    assert changes(old, new, ids=True) == ["id: a -> b"]
    assert changes(old, {**new, "config": {"context_from": 0.5, "epochs": 7}}) == [
        "epochs: 100 -> 7"
    ]
    moved = {**old["config"], "start_from": "somewhere"}
    assert signature({**old, "preset": "p", "precision": "bf16", "config": moved}) == old


def test_paths_of_data_may_change():
    """Moved episodes are given by --data; the run stays the run."""
    fields = {experiment.data_field for experiment in EXPERIMENTS.values()}
    assert fields - {None} <= PLACES


def test_the_run_of_a_path(tmp_path):
    run = train(tmp_path / "run")
    assert run_at(run).folder == run_at(run / LAST).folder == run
    assert find_checkpoint(run)[1].path == find_checkpoint(run / LAST)[1].path == run / LAST
