"""Models by name: a zoo of one tiny model, made by the maintainers' command; and the real one."""

import json
import pickle
import re
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

import nps
from nps import zoo
from nps.errors import UserError
from nps.experiments import EXPERIMENTS, config_of
from nps.experiments.balls import task as balls
from nps.experiments.export import export
from nps.experiments.results import read_results
from nps.experiments.rule_names import rename
from nps.experiments.world_models import model as world_models
from nps.experiments.world_models.config import WorldModelConfig
from nps.models.world_model import Actions
from nps.training import model_folder
from nps.training.run import Run
from nps.zoo.add import add, size
from tests.experiments.test_custom import TINY as OWN
from tests.experiments.test_custom import arrays_of
from tests.zoo.made import commands, tiny_run

RESULTS = Path(__file__).parents[2] / "results"
SMALL = 500_000
"""Bytes of weights. All published presets below it ship; the others have a megabyte or more."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("made") / "tiny")


@pytest.fixture(scope="module")
def filled(run, tmp_path_factory):
    """A zoo with the model `tiny`."""
    folder = tmp_path_factory.mktemp("zoo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo, "HERE", folder)
        patch.setattr("nps.zoo.add.HERE", folder)
        (folder / "index.json").write_text('{"schema": 1, "models": {}}')
        out, _ = commands("models", "--add", str(run), "--name", "tiny", "--note", "A test.")
        assert out.startswith("tiny: added")
    return folder


@pytest.fixture
def small_zoo(filled, tmp_path, monkeypatch):
    """A copy of that zoo in place of the one that ships; the current folder is empty."""
    shutil.copytree(filled, tmp_path / "zoo")
    for module in ("nps.zoo", "nps.zoo.add"):
        monkeypatch.setattr(f"{module}.HERE", tmp_path / "zoo")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "zoo"


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- by name ----------------------------------------------------------------------------------


def test_a_name_loads_the_same_model(small_zoo, run):
    named, original = nps.load("tiny"), nps.load(run)
    states = named.model.state_dict(), original.model.state_dict()
    assert all(torch.equal(states[0][name], value) for name, value in states[1].items())
    assert named.folder == small_zoo / "weights" / "tiny"
    assert named.config == original.config
    assert (named.seed, named.step, named.which) == (3, original.step, "best")
    assert torch.equal(named.trace(n=4).rule, original.trace(n=4).rule)
    test = json.loads((run / "test.json").read_text())
    assert named.card["test"] == test
    assert named.test()["mse"] == pytest.approx(test["mse"])
    assert f"test Error (MSE) {test['mse']:.3g}" in repr(named)
    assert named.metrics == []
    assert original.card is None


def test_a_path_that_exists_wins(small_zoo, run):
    shutil.copytree(run, "tiny")
    assert nps.load("tiny").folder == Path("tiny")
    shutil.rmtree("tiny")
    assert zoo.is_shipped(nps.load("tiny").folder)


def test_an_unknown_name_is_one_line(small_zoo):
    expected = "tinny: no such run folder, and no model of this name; did you mean tiny?"
    with pytest.raises(UserError, match=re.escape(expected)):
        nps.load("tinny")
    _, err = commands("eval", "tinny", code=2)
    assert err == f"nps: error: {expected}\n"
    with pytest.raises(UserError, match="runs/tinny: no such run folder"):
        nps.load("runs/tinny")
    with pytest.raises(UserError, match="got an empty path"):
        nps.load(" ")


def test_there_is_no_last_model(small_zoo):
    assert nps.load("tiny", which="last").which == "best"
    _, err = commands("eval", "tiny", "--which", "last")
    assert "it has no last model; using the best" in err


def test_commands_write_nothing_into_the_zoo(small_zoo, run):
    before = content(small_zoo)
    out, err = commands("eval", "tiny", "--all")
    assert f"{json.loads((run / 'test.json').read_text())['mse']:.6g}" in out
    assert "no file is written" in err
    assert not list(Path().iterdir())
    commands("inspect", "tiny")
    assert {path.parts[:2] for path in content(Path())} <= {("runs", "tiny")}
    with pytest.raises(UserError, match="tiny: a model that ships with nps cannot be changed"):
        zoo.require_writable(nps.load("tiny").folder)
    assert content(small_zoo) == before


def test_models_are_listed(small_zoo):
    out, _ = commands("models")
    words = out.split()
    assert {"tiny", "(MSE)"} <= set(words)
    assert "tiny: 2 of 300 epochs, 4 other settings changed" in " ".join(words)
    assert "Floor" in words
    assert 'nps.load("tiny")' in out


# -- what is read -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "card.json"])
def test_damage_is_named(small_zoo, name):
    path = small_zoo / "weights" / "tiny" / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(UserError, match=f"model tiny: .*the sha256 of {name} differs; reinstall"):
        nps.load("tiny")
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=f"model tiny: .*{name} has {len(whole) - 1} bytes"):
        nps.load("tiny")
    path.unlink()
    with pytest.raises(UserError, match=f"model tiny: .*{name}: no such file"):
        nps.load("tiny")


def test_nothing_is_unpickled(small_zoo, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    assert nps.load("tiny").model is not None


def rewritten(folder: Path, change) -> None:
    """Change the weights of a model folder, and its card with them."""
    tensors = safetensors.torch.load((folder / "model.safetensors").read_bytes())
    change(tensors)
    data = safetensors.torch.save(tensors)
    (folder / "model.safetensors").write_bytes(data)
    card = json.loads((folder / "card.json").read_text())
    card["files"]["model.safetensors"] = model_folder.file_of(data)
    (folder / "card.json").write_text(json.dumps(card))


def test_every_key_must_be_there_and_no_other(filled, tmp_path):
    def some(tensors):
        return next(name for name, tensor in tensors.items() if tensor.is_floating_point())

    def nan(tensors):
        tensors[some(tensors)].view(-1)[0] = float("nan")

    for change, expected in (
        (lambda t: t.pop(some(t)), "[Mm]issing key"),
        (lambda t: t.update(more=torch.zeros(2)), "[Uu]nexpected key"),
        (lambda t: t.update({some(t): torch.zeros(7, 5, 3)}), "size mismatch"),
        (nan, "weights that are not finite"),
    ):
        shutil.copytree(filled / "weights" / "tiny", tmp_path / "one")
        rewritten(tmp_path / "one", change)
        with pytest.raises(UserError, match=expected):
            _ = nps.load(tmp_path / "one").model
        shutil.rmtree(tmp_path / "one")


def test_a_damaged_card_is_one_line(filled, tmp_path):
    shutil.copytree(filled / "weights" / "tiny", tmp_path / "one")
    path = tmp_path / "one" / "card.json"
    card = json.loads(path.read_text())
    file = card["files"]["model.safetensors"]
    for change, expected in (
        ({"files": {}}, "it lists no model.safetensors"),
        ({"files": {**card["files"], "../x": file}}, "it lists '../x'"),
        ({"files": {**card["files"], "config.json": file}}, "it lists 'config.json'"),
        ({"files": {"model.safetensors": {**file, "bytes": -1}}}, "expected at most 0"),
        ({"columns": ["one"], "numbers": [["one"]]}, "not a table"),
        ({"numbers": [["one"]]}, "not a table"),
        ({"changed": {"epochs": [1]}}, "not a table"),
        ({"step": "1"}, "step is '1', expected int"),
        ({"schema": 99}, "update nps"),
    ):
        path.write_text(json.dumps({**card, **change}))
        with pytest.raises(UserError, match=re.escape(expected)):
            nps.load(tmp_path / "one")


def test_half_precision_is_read_as_float32(filled, tmp_path):
    shutil.copytree(filled / "weights" / "tiny", tmp_path / "half")

    def halve(tensors):
        for name, tensor in tensors.items():
            tensors[name] = tensor.half() if tensor.is_floating_point() else tensor

    rewritten(tmp_path / "half", halve)
    run = nps.load(tmp_path / "half")
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    assert run.test()["mse"] == pytest.approx(run.card["test"]["mse"], rel=1e-2)


# -- making one -------------------------------------------------------------------------------


def test_export_leaves_out_where_things_were(tmp_path):
    import numpy as np

    episodes = tmp_path / "my secret" / "episodes.npz"
    episodes.parent.mkdir()
    np.savez(episodes, **arrays_of())
    out = tmp_path / "my secret" / "run"
    run = nps.train("world-model", data=episodes, out=out, epochs=2, progress=False, **OWN)
    commands("eval", str(out))
    card = export(out, tmp_path / "model", with_data=True)
    assert card["trained"]["command"].startswith(
        "nps train world-model --seed 0 --data episodes.npz"
    )
    for path, data in content(tmp_path / "model").items():
        assert b"my secret" not in data, path
    expected = run.test()["predicted_all"]
    shutil.rmtree(episodes.parent)
    moved = shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    assert nps.load(moved).test()["predicted_all"] == pytest.approx(expected)

    (Path(moved) / "episodes.npz").unlink()
    with pytest.raises(UserError, match=r"episodes\.npz"):
        _ = nps.load(moved).model


def test_export_refuses(run, tmp_path):
    with pytest.raises(UserError, match="exists already"):
        export(run, run)
    shutil.copytree(run, tmp_path / "other")
    test = json.loads((run / "test.json").read_text())
    (tmp_path / "other" / "test.json").write_text(json.dumps({**test, "step": 5}))
    with pytest.raises(UserError, match="of step 5, expected step 20"):
        export(tmp_path / "other", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_model_folder_can_be_exported_again(filled, tmp_path):
    export(filled / "weights" / "tiny", tmp_path / "again", licence="MIT")
    before, after = content(filled / "weights" / "tiny"), content(tmp_path / "again")
    changed = {path.name for path, data in after.items() if data not in before.values()}
    assert changed == {"card.json"}
    assert nps.load(tmp_path / "again").card["licence"] == "MIT"


def test_a_test_of_a_model_folder_and_names_of_rules_go_with_it(filled, tmp_path):
    shutil.copytree(filled / "weights" / "tiny", tmp_path / "one")
    path = tmp_path / "one" / "card.json"
    card = json.loads(path.read_text())
    path.write_text(json.dumps({**card, "test": {}, "verdict": "", "numbers": []}))
    rename(nps.load(tmp_path / "one"), 1, "to the right")
    commands("eval", str(tmp_path / "one"))
    again = export(tmp_path / "one", tmp_path / "two")
    assert again["test"]["mse"] == pytest.approx(card["test"]["mse"])
    assert again["numbers"][0][0] == "Error (MSE)"
    layer = nps.load(tmp_path / "two").workbench.layer
    assert layer.rules.names[1] == "to the right"


def test_add_refuses(small_zoo, run, tmp_path, monkeypatch):
    before = content(small_zoo)
    _, err = commands("models", "--add", str(run), "--name", "../x", code=2)
    assert "name: got '../x'" in err
    _, err = commands("models", "--add", str(run), code=2)
    assert "--name: expected a name" in err
    _, err = commands("models", "--note", "x", code=2)
    assert "need --add" in err
    shutil.copytree(run, tmp_path / "untested")
    (tmp_path / "untested" / "test.json").unlink()
    _, err = commands("models", "--add", str(tmp_path / "untested"), "--name", "x", code=2)
    assert "not tested" in err
    monkeypatch.setattr("nps.zoo.add.MOST_BYTES", 9000)
    export(run, tmp_path / "model")
    with pytest.raises(UserError, match="all models would have"):
        add(tmp_path / "model", "second")
    assert content(small_zoo) == before


# -- the models that ship ---------------------------------------------------------------------


def test_all_models_together_are_small():
    models = zoo.index()["models"]
    assert size(models) <= zoo.MOST_BYTES
    folders = {path.name for path in (zoo.HERE / "weights").iterdir()}
    assert folders == set(models)


def test_every_published_preset_with_a_small_model_ships():
    small, unchanged = set(), {name for name in zoo.names() if not zoo.card(name)["changed"]}
    for experiment in ("arithmetic", "mnist", "blocks", "balls", "atari"):
        for preset in {run.preset for run in read_results(RESULTS / experiment) if run.published}:
            if weights_in_bytes(experiment, preset) < SMALL:
                small.add(preset)
    assert {"arithmetic", "arithmetic-sharp-any", "blocks-best"} <= small
    assert small <= unchanged


def weights_in_bytes(experiment: str, preset: str) -> int:
    """Of a model of this preset, built without its data where that takes long."""
    config = EXPERIMENTS[experiment].presets[preset].config
    if experiment == "balls":
        model = balls.make_model(config)
    elif isinstance(config, WorldModelConfig):
        # 25 actions are those of blocks, two frames Atari's: a few numbers more or less.
        actions = Actions(25, config.slots, config.action)
        model = world_models.make_model(config, actions, (50, 50, 6))
    else:
        model = EXPERIMENTS[experiment].make_task(config, torch.device("cpu")).make_model(0)
    return sum(x.numel() * x.element_size() for x in model.state_dict().values())


@pytest.mark.parametrize("name", zoo.names())
def test_a_model_that_ships_is_whole_and_described(name):
    folder = zoo.find_run(name)
    assert {path.name for path in folder.iterdir()} == set(zoo.index()["models"][name])
    run, card = Run(folder), zoo.card(name)
    config_of(run)
    assert card["licence"] == "Apache-2.0"
    assert card["test"]
    assert card["numbers"]
    assert card["trained"]["commit"]
    assert card["trained"]["seconds"] > 0
    assert card["files"]["model.safetensors"] == zoo.index()["models"][name]["model.safetensors"]
    for path in folder.glob("*.json"):
        assert not re.search(r"/(work|home|root|tmp)/", path.read_text()), path


@pytest.mark.skipif("arithmetic-energy" not in zoo.names(), reason="does not ship")
def test_a_model_that_ships_has_the_numbers_of_its_card():
    run = nps.load("arithmetic-energy")
    test = run.test()
    assert test["mse"] == pytest.approx(run.card["test"]["mse"], rel=1e-3)
    assert test["segregation"] == run.card["test"]["segregation"]
