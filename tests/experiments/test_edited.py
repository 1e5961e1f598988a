"""Edited models are saved, load and evaluate as any other; names of rules stay with their run."""

import copy
import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch

import nps
from nps.errors import UserError
from nps.experiments.edited import bake, edited_model, rename, save_edited
from nps.experiments.rule_names import FILE
from nps.inspect.edits import Added, Edits, Forced, Scaled
from nps.inspect.intervene import intervened
from nps.rules import ConvRules, MLPRules
from tests.experiments.test_train import TINY
from tests.test_cli import call

EDITS = Edits(
    disabled=(0,), scaled=(Scaled(1, 0.5),), added=(Added(2, "x", 0.25), Added(1, "y", -0.1))
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("edited") / "run"
    nps.train("arithmetic", out=folder, progress=False, **TINY)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return nps.load(tmp_path / "run")


def outputs(model, run):
    with torch.no_grad():
        return model(*run.examples(20))


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_is_saved_does_what_was_tried(run, tmp_path):
    before = contents(run.folder)
    names = {each.feature for each in EDITS.added}
    directions = {name: run.workbench.layer_direction(name) for name in names}
    with intervened(run.workbench.layer, EDITS, directions):
        tried = outputs(run.model, run)
    out = save_edited(run, EDITS, tmp_path / "new" / "edited")
    loaded = nps.load(out)
    torch.testing.assert_close(outputs(loaded.model, run), tried)
    assert not torch.equal(tried, outputs(run.model, run))
    assert loaded.workbench.layer.rules.off == [0]
    episodes = [bench.play(0, edits) for bench, edits in
                ((run.workbench, EDITS), (loaded.workbench, Edits()))]  # fmt: skip
    np.testing.assert_allclose(episodes[0].slots, episodes[1].slots, atol=1e-5)
    assert contents(run.folder) == before
    saved = json.loads((out / "edits.json").read_text())
    assert Edits.from_json(saved["edits"]) == EDITS
    assert saved["of"]["preset"] == "arithmetic"
    assert saved["of"]["step"] == run.step
    assert str(tmp_path) not in (out / "edits.json").read_text()
    assert "rule 0 off, rule 1 times 0.5" in loaded.card["note"]
    assert loaded.card["test"] == {}


def test_it_is_evaluated_and_edited_again(run, tmp_path, capsys):
    out = save_edited(run, EDITS, tmp_path / "edited")
    call("eval", str(out))
    tested = json.loads((out / "test.json").read_text())
    with torch.no_grad():
        expected = nps.load(out).test()
    assert tested["mse"] == pytest.approx(expected["mse"])
    assert tested["mse"] != pytest.approx(run.test()["mse"])
    again = save_edited(nps.load(out), Edits(disabled=(3,)), tmp_path / "again")
    assert nps.load(again).workbench.layer.rules.off == [0, 3]
    assert (nps.load(again).card["note"]).count("Edited by hand") == 2


def test_what_happens_at_one_step_is_left_out(run, tmp_path):
    forced = (Forced(0, 0, rule=1),)
    out = save_edited(run, dataclasses.replace(EDITS, forced=forced), tmp_path / "edited")
    assert "forced" not in (out / "edits.json").read_text()
    for edits in (Edits(), Edits(forced=forced)):
        with pytest.raises(UserError, match="nothing to save"):
            save_edited(run, edits, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_nothing_is_overwritten_or_half_written(run, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    for taken in ("mine", "mine/file", "run"):
        with pytest.raises(UserError, match="exists already"):
            save_edited(run, EDITS, tmp_path / taken)
    for edits, message in [
        (Edits(disabled=(99,)), "rule: got 99"),
        (Edits(added=(Added(0, "colour", 1.0),)), "feature|colour"),
    ]:
        with pytest.raises(UserError, match=message):
            save_edited(run, edits, tmp_path / "edited")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nps.training.model_folder.write_bytes", full)
    with pytest.raises(RuntimeError, match=r"cannot write .*No space left"):
        save_edited(run, EDITS, tmp_path / "edited")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "run"]


def test_the_model_itself_is_not_touched(run):
    before = copy.deepcopy(run.model.state_dict())
    edited_model(run, EDITS)
    after = run.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert run.workbench.layer.rules.off == []


class Bench:
    """Stands for a workbench whose feature is a given direction."""

    def __init__(self, direction):
        self.direction = np.asarray(direction, np.float32)

    def layer_direction(self, feature):
        return self.direction


@pytest.mark.parametrize("layers", [1, 2])
def test_baked_rules_against_their_outputs(layers):
    torch.manual_seed(0)
    rules = MLPRules(3, 4, hidden_dim=8, hidden_layers=layers).eval()
    rules.freeze(1)
    x, y = torch.randn(6, 4), torch.randn(6, 4)
    with torch.no_grad():
        before = rules.outputs(x, y)
        edits = Edits(scaled=(Scaled(1, 2.0),), added=(Added(1, "x", 3.0),))
        bake(rules, edits, Bench([1.0, 0.0]))
        after = rules.outputs(x, y)
    expected = 2 * before[1] + torch.tensor([3.0, 0, 0, 0])
    torch.testing.assert_close(after[1], expected)
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert rules.frozen == [1]


def test_baked_maps():
    torch.manual_seed(0)
    rules = ConvRules(2, 3, hidden_dim=4).eval()
    x, y = torch.randn(5, 3, 4, 4), torch.randn(5, 3, 4, 4)
    edits = Edits(scaled=(Scaled(0, 0.5),), added=(Added(0, "up", 2.0),))
    with torch.no_grad():
        before = rules.outputs(x, y)
        bake(rules, edits, Bench(np.repeat([1.0, 0.0, -1.0], 16)))
        after = rules.outputs(x, y)
    expected = 0.5 * before[:, 0] + torch.tensor([2.0, 0.0, -2.0])[:, None, None]
    torch.testing.assert_close(after[:, 0], expected)
    with pytest.raises(UserError, match="not the same in each cell"):
        bake(rules, edits, Bench(np.arange(48.0)))


def test_rules_with_outputs_of_their_own_are_refused():
    class Own(MLPRules):
        def outputs(self, primary, context):
            return super().outputs(primary, context).tanh()

    with pytest.raises(UserError, match="Own has no output layer"):
        bake(Own(2, 3), Edits(scaled=(Scaled(0, 2.0),)), Bench([1.0]))


# -- names -----------------------------------------------------------------------------------------


def test_names_stay_with_the_run(run):
    before = {p: data for p, data in contents(run.folder).items() if "checkpoints" in str(p)}
    names = rename(run, "rule 1", " push ")
    assert names[:3] == ["rule 0", "push", "rule 2"]
    assert run.workbench.rule_names[1] == "push"
    again = nps.load(run.folder)
    assert list(again.workbench.rule_names) == names
    assert rename(again, 0, "stay")[0] == "stay"
    assert list(nps.load(run.folder).workbench.rule_names)[:2] == ["stay", "push"]
    after = {p: data for p, data in contents(run.folder).items() if "checkpoints" in str(p)}
    assert after == before


def test_names_are_saved_with_an_edited_model(run, tmp_path):
    rename(run, 2, "turn")
    out = save_edited(run, Edits(disabled=(2,)), tmp_path / "edited")
    loaded = nps.load(out)
    assert loaded.workbench.rule_names[2] == "turn"
    assert "turn off" in loaded.card["note"]


def test_names_that_cannot_be(run):
    for rule, name, message in [
        (0, "rule 1", "twice"),
        (0, "  ", "non-empty"),
        (99, "push", "rule: got 99"),
        ("psh", "push", "rule: got 'psh'"),
    ]:
        with pytest.raises(UserError, match=message):
            rename(run, rule, name)
    assert not (run.folder / FILE).exists()
    assert run.workbench.rule_names[0] == "rule 0"


def test_a_name_that_cannot_be_written_is_not_kept(run, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nps.experiments.rule_names.write_json", full)
    with pytest.raises(RuntimeError, match="No space left"):
        rename(run, 0, "push")
    assert run.workbench.rule_names[0] == "rule 0"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"layer.rules": ["a"]}', '{"other": ["a"]}', '{"layer.rules": 3}']
)
def test_damaged_names_do_not_keep_a_run_from_loading(run, text, capsys):
    (run.folder / FILE).write_text(text)
    loaded = nps.load(run.folder)
    assert list(loaded.workbench.rule_names)[:2] == ["rule 0", "rule 1"]
    assert "rules keep their names" in capsys.readouterr().err


def test_a_fresh_training_forgets_the_names(run):
    rename(run, 0, "push")
    nps.train("arithmetic", out=run.folder, progress=False, fresh=True, **TINY)
    assert not (run.folder / FILE).exists()
