"""What outlives the page: rules' names, and edited models that are tested like any other."""

import json
from pathlib import Path

import pytest

import nps
from nps.errors import UserError
from nps.viewer.keeping import _folder
from nps.viewer.routes import answer
from nps.viewer.session import Session
from tests.experiments.test_blocks import TINY
from tests.test_cli import call
from tests.viewer.fake import FakeRun, FakeWorkbench


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "blocks"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    call("train", "blocks-best", f"--out={folder}", "--epochs=1", *flags)
    return folder


@pytest.fixture(scope="module")
def session(trained) -> Session:
    return Session([nps.load(trained)])


def names(session: Session) -> list[str]:
    return answer(session, "/api/models", {})["models"][0]["rules"]


def test_a_name_stays_with_the_run(session, trained):
    before = names(session)
    found = answer(session, "/api/rename", {"model": 0, "rule": 1, "name": "  stößt <b> "})
    assert found["rules"] == [before[0], "stößt <b>", *before[2:]] == names(session)
    again = Session([nps.load(trained)])
    assert names(again) == found["rules"]
    answer(session, "/api/rename", {"model": 0, "rule": 1, "name": before[1]})
    assert names(session) == before


@pytest.mark.parametrize(
    ("rule", "name", "message"),
    [(99, "x", "rule: got 99"), (-1, "x", "rule: got -1"), (0, "", "name: expected"),
     (0, " ", "name: expected"), (0, "x" * 61, "name: expected"), (0, "a\nb", "name: expected"),
     (0, "{taken}", "twice"), (0, None, "name: got null, expected a text")],
)  # fmt: skip
def test_names_that_cannot_be(session, rule, name, message):
    before = names(session)
    name = before[1] if name == "{taken}" else name
    with pytest.raises(UserError, match=message):
        answer(session, "/api/rename", {"model": 0, "rule": rule, "name": name})
    assert names(session) == before


def test_an_edited_model_is_a_run_of_its_own(session, trained, monkeypatch):
    monkeypatch.chdir(trained.parent.parent)
    edits = {"disabled": [0], "scaled": [{"rule": 1, "factor": 0.5}]}
    forced = {"forced": [{"step": 0, "slot": 0, "rule": 1}]}  # of one episode: not of the model
    body = {"model": 0, "edits": edits | forced}
    weights = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    found = answer(session, "/api/save", body)
    assert found["run"] == f"{trained.parent.name}/blocks-edited"
    assert found["command"] == f"nps eval {trained.parent.name}/blocks-edited"
    assert {path: path.read_bytes() for path in weights} == weights
    saved = nps.load(found["run"])
    assert saved.workbench.layer.rules.off == [0]
    assert json.loads((Path(found["run"]) / "edits.json").read_text())["edits"] == edits
    # It plays as the page showed it under these edits.
    shown = answer(session, "/api/play", {"model": 0, "episode": 0, "edits": edits})
    alone = answer(Session([saved]), "/api/play", {"model": 0, "episode": 0})
    assert alone["rule"] == shown["rule"]
    assert alone["error"] == pytest.approx(shown["error"], rel=1e-4, abs=1e-6)
    second = answer(session, "/api/save", body)
    assert second["run"].endswith("blocks-edited-2")
    named = answer(session, "/api/save", body | {"name": "half-as-strong"})
    assert named["run"].endswith("/half-as-strong")
    with pytest.raises(UserError, match="half-as-strong exists already"):
        answer(session, "/api/save", body | {"name": "half-as-strong"})


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../up", "a/b", "a\\b", "/tmp/x", ".hidden", "a b", "x" * 81, "ü", "a\n"],
)
def test_folders_that_cannot_be(session, trained, name):
    before = sorted(trained.parent.rglob("*"))
    with pytest.raises(UserError, match="name: got"):
        answer(session, "/api/save", {"model": 0, "edits": {"disabled": [0]}, "name": name})
    assert sorted(trained.parent.rglob("*")) == before


def test_nothing_to_save(session):
    with pytest.raises(UserError, match="expected a rule that is switched off"):
        answer(session, "/api/save", {"model": 0, "edits": {"acted": [{"step": 0, "action": 1}]}})
    with pytest.raises(UserError, match="rule: got 99"):
        answer(session, "/api/save", {"model": 0, "edits": {"disabled": [99]}})


def test_a_model_in_memory_has_no_place(monkeypatch):
    session = Session([FakeRun(FakeWorkbench())])
    (model,) = answer(session, "/api/models", {})["models"]
    assert (model["renames"], model["saves"]) == (False, False)
    with pytest.raises(UserError, match="not of a run folder: its rules"):
        answer(session, "/api/rename", {"model": 0, "rule": 0, "name": "x"})
    with pytest.raises(UserError, match="not of a run folder: it cannot"):
        answer(session, "/api/save", {"model": 0, "edits": {"disabled": [0]}})


def test_where_edited_models_go(tmp_path):
    from nps.zoo import HERE

    assert _folder(tmp_path / "sharp", None) == tmp_path / "sharp-edited"
    assert _folder(tmp_path / "sharp" / "seed-3", None) == tmp_path / "sharp-seed-3-edited"
    assert _folder(tmp_path / "sharp", "mine") == tmp_path / "mine"
    shipped = HERE / "weights" / "blocks-best"
    assert _folder(shipped, None) == Path("runs/blocks-best-edited")
