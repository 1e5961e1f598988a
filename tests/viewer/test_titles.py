"""Titles of models: no two that are shown together have the same."""

from __future__ import annotations

import pytest

import nps
from nps.viewer.session import Session
from nps.viewer.titles import title, titles
from tests.viewer.fake import FakeRun, FakeWorkbench, write_folder


def run(folder=None, seed=0):
    return FakeRun(None, seed, folder)


def test_models_that_differ_are_called_by_preset_and_seed(tmp_path):
    assert titles([run(), run(seed=1)]) == ["fake-grid, seed 0", "fake-grid, seed 1"]
    folder = write_folder(tmp_path / "mine", "a")
    assert titles([run(folder)]) == ["fake-grid, seed 0"]


def test_an_edited_model_is_called_by_its_folder(tmp_path):
    plain = write_folder(tmp_path / "plain", "a")
    edited = write_folder(tmp_path / "nopush", "a", {"disabled": [0]})
    found = titles([run(plain), run(edited)])
    assert found == ["fake-grid, seed 0", "fake-grid, seed 0, edited as nopush"]
    assert titles([run(edited)]) == found[1:]
    (edited / "edits.json").write_text("{")  # damaged: no reason not to show it
    assert titles([run(edited)]) == found[:1]


def test_equal_titles_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a, b, c = (write_folder(tmp_path / name, "a") for name in ("x/one", "y/one", "two"))
    assert titles([run(a), run(c)]) == ["fake-grid, seed 0, one", "fake-grid, seed 0, two"]
    assert titles([run(a), run(b), run(b)]) == [
        "fake-grid, seed 0, x/one",
        "fake-grid, seed 0, y/one, number 2",
        "fake-grid, seed 0, y/one, number 3",
    ]
    assert titles([run(), run()]) == ["fake-grid, seed 0, number 1", "fake-grid, seed 0, number 2"]


@pytest.mark.parametrize(
    ("name", "preset", "expected"),
    [
        ("cartpole", "world-model", "cartpole"),
        ("arithmetic-energy-seed1", "arithmetic-energy", "arithmetic-energy, seed 1"),
    ],
)
def test_a_model_that_ships_is_called_as_it_was_asked_for(name, preset, expected):
    """And not by a preset of another name."""
    found = nps.load(name)
    assert found.preset == preset
    assert title(found) == expected


def test_the_page_gets_them(tmp_path):
    session = Session([FakeRun(FakeWorkbench()), FakeRun(FakeWorkbench())])
    assert [model.title for model in session.models] == titles([run(), run()])
    assert session.subset([1]).models[0].title == "fake-grid, seed 0, number 2"
