"""`nps eval` of an edited model: beside its numbers those from before the edits, or why not."""

import json
import shutil

import pytest

import nps
from nps.experiments.edited import save_edited
from nps.experiments.export import export
from nps.experiments.unedited import COLUMN, unedited, with_column
from nps.inspect.edits import Edits, Scaled
from nps.inspect.report import Table
from tests.experiments.test_train import TINY
from tests.test_cli import call


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tested run beside an edit of it."""
    folder = tmp_path_factory.mktemp("unedited")
    nps.train("arithmetic", out=folder / "run", progress=False, **TINY)
    run = nps.load(folder / "run")
    halves = tuple(Scaled(rule, 0.5) for rule in range(len(run.workbench.rule_names)))
    save_edited(run, Edits(scaled=halves), folder / "edited")
    call("eval", str(folder / "run"))
    return folder


@pytest.fixture
def folder(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "all")
    monkeypatch.chdir(tmp_path / "all")
    return tmp_path / "all"


def numbers(folder):
    return json.loads((folder / "test.json").read_text())


def test_the_numbers_from_before_stand_beside(folder):
    out, _ = call("eval", "edited", "--all")
    before, after = numbers(folder / "run"), numbers(folder / "edited")
    assert before["mse"] != after["mse"]
    for each in (before, after):
        assert f"{each['mse']:.6g}" in out
    assert f"{COLUMN}: run." in out
    assert COLUMN not in call("eval", "run")[0]


def test_those_of_a_card(folder):
    export(folder / "run", folder / "model")
    save_edited(nps.load(folder / "model"), Edits(disabled=(1,)), folder / "second")
    assert f"{COLUMN}: model." in call("eval", "second")[0]
    found = unedited(folder / "second", {})
    assert found.metrics["mse"] == numbers(folder / "run")["mse"]


def test_an_edit_of_an_edit_is_compared_with_the_first(folder):
    save_edited(nps.load(folder / "edited"), Edits(disabled=(1,)), folder / "second")
    assert unedited(folder / "second", {}).metrics is None  # not tested yet
    call("eval", "edited")
    assert unedited(folder / "second", {}).metrics["mse"] == numbers(folder / "edited")["mse"]


def test_what_is_missing_is_said_in_one_line(folder):
    edited, none = folder / "edited", f"{COLUMN}: not shown"
    assert unedited(folder / "run", {}) is None
    stored = unedited(edited, {})
    assert stored.metrics["mse"] == numbers(folder / "run")["mse"]
    for other in ({"on": "other.h5"}, {"changed_data": True}):
        line = unedited(edited, other).line
        assert line == f"{none}, run has no numbers of this test set stored"
    saved = numbers(folder / "run")
    (folder / "run" / "test.json").write_text(json.dumps(saved | {"step": saved["step"] + 1}))
    assert unedited(edited, {}).metrics is None  # of weights of another step
    (folder / "run" / "test.json").write_text("{")
    assert unedited(edited, {}).line.startswith(f"{none}; ")
    shutil.rmtree(folder / "run")
    assert unedited(edited, {}).line == f"{none}, run is not found any more"
    out, _ = call("eval", "edited")
    assert f"{none}, run is not found any more" in " ".join(out.split())
    (edited / "edits.json").write_text("{")
    assert unedited(edited, {}).line.startswith(f"{none}; ")


def test_rows_are_matched_by_name():
    table = Table(["", "Model", "Floor"], [["a", "1", "0"], ["b", "2", "0"]], "Tested.")
    before = Table(["", "Model", "Floor"], [["b", "4", "0"], ["c", "3", "0"]])
    found = with_column(table, before)
    assert found.columns == ["", "Model", COLUMN, "Floor"]
    assert found.rows == [["a", "1", "–", "0"], ["b", "2", "4", "0"]]
    assert found.caption == "Tested."
