"""`nps inspect` as a user meets it: tables, pictures, one-line errors."""

import json
import sys
from pathlib import Path

import pytest

from nps.experiments.arithmetic import Arithmetic
from tests.experiments.test_mnist import FLAGS
from tests.test_cli import SMALL, call

pytest.importorskip("sklearn")

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, str]:
    """A run of each kind, trained for two steps."""
    out = tmp_path_factory.mktemp("runs")
    call("train", "arithmetic", "--out", str(out / "arithmetic"), "--epochs=1", *SMALL)
    for preset in ("mnist-balanced", "mnist-mlp"):
        call("train", preset, "--out", str(out / preset / "seed-0"), *FLAGS)
    start = f"--start-from={out}/mnist-balanced"
    call("train", "mnist-fifth", "--out", str(out / "fifth"), start, *FLAGS)
    return {
        "arithmetic": str(out / "arithmetic"),
        "mnist": str(out / "mnist-balanced/seed-0"),
        "mlp": str(out / "mnist-mlp/seed-0"),
        "fifth": str(out / "fifth"),
    }


def test_a_run_of_arithmetic_shows_its_rules_in_words(runs):
    out, _ = call("inspect", runs["arithmetic"])
    assert "x addition" in out
    assert "rule 3:" in out
    assert "Frozen" in out


def test_a_run_of_mnist_shows_what_its_rules_serve(runs):
    out, _ = call("inspect", runs["mnist"])
    assert "rotate_right" in out
    assert "Parameters" in out
    assert "first 10 test digits" in out
    assert "flip" in call("inspect", runs["fifth"])[0]
    assert "No rules" in call("inspect", runs["mlp"])[0]


def test_composed_by_operations(runs, tmp_path):
    picture = tmp_path / "new/folder/p.png"
    steps = "rotate_right, translate_up,translate_up"
    out, _ = call("inspect", runs["mnist"], "--compose", steps, "--digits=1,1", f"--out={picture}")
    assert picture.read_bytes().startswith(PNG)
    assert str(picture) in out
    assert out.count("translate_up") >= 2
    assert "In the slot" in out
    assert list(picture.parent.iterdir()) == [picture]
    call("inspect", runs["mlp"], "--compose=rotate_left", "--index=0,9")
    assert (Path(runs["mlp"]) / "figures/compose.png").read_bytes().startswith(PNG)
    call("inspect", runs["fifth"], "--compose=flip,flip", "--index=3", f"--out={picture}")


def test_composed_by_rules(runs, tmp_path):
    picture = tmp_path / "p.png"
    out, _ = call("inspect", runs["mnist"], "--rules=0,2", "--index=4", f"--out={picture}")
    assert "rule 0, rule 2" in out
    assert picture.read_bytes().startswith(PNG)
    call("inspect", runs["fifth"], "--rules=4", "--index=4", f"--out={picture}")


@pytest.mark.parametrize(
    ("run", "args", "message"),
    [
        ("mnist", ["--compose=rotate_rihgt"], "unknown operation 'rotate_rihgt'; did you mean"),
        ("mnist", ["--compose=rotate_right,"], "unknown operation ''; there are: flip, rotate"),
        ("mnist", ["--compose=flip"], "--compose: this model was not trained on flip"),
        ("mnist", ["--rules=4"], "there is no rule 4, expected 0 to 3"),
        ("mnist", ["--rules=-1"], "rules: got '-1', expected up to 20 numbers"),
        ("mnist", ["--rules=0", "--compose=rotate_left"], "expected one of the two"),
        ("mnist", ["--rules=" + "0," * 20 + "0"], "expected up to 20 numbers"),
        ("mnist", ["--compose=" + ",".join(["rotate_left"] * 21)], "more than 20 steps"),
        ("mnist", ["--rules=0", "--digits=12"], "expected digits from 0 to 9"),
        ("mnist", ["--rules=0", "--digits=1,1,1,1,1,1,1"], "test images show a 1"),
        ("mnist", ["--rules=0", "--index="], "index: got none"),
        ("mnist", ["--rules=0", "--index=10"], "--index: got 10, expected 0 to 9"),
        ("mnist", ["--rules=0", "--out=p.gif"], "--out: got p.gif, expected a name ending in .png"),
        ("mnist", ["--out=p.png"], "--out: there is no picture to write"),
        ("mlp", ["--rules=0"], "--rules: this model has no rules"),
        ("arithmetic", ["--compose=rotate_left"], "(a run of arithmetic): unknown flag --compose"),
        (None, [], "nowhere: no such run folder"),
    ],
)
def test_mistakes_are_one_line(runs, tmp_path, monkeypatch, run, args, message):
    monkeypatch.chdir(tmp_path)
    _, err = call("inspect", "nowhere" if run is None else runs[run], *args, code=2)
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_missing_matplotlib_is_reported_before_anything_is_drawn(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    _, err = call("inspect", runs["mnist"], "--rules=0", "--index=1", code=2)
    assert "--rules draws a picture: pip install 'neural-production-systems[plots]'" in err
    call("inspect", runs["mnist"])  # tables need none


def test_an_experiment_that_cannot_be_inspected_says_so(runs, monkeypatch):
    monkeypatch.delattr(Arithmetic, "inspect")
    error = call("inspect", runs["arithmetic"], code=2)[1]
    assert "runs of arithmetic cannot be inspected" in error


def test_help_has_examples(runs):
    assert "nps inspect RUN [flags]" in call("inspect", "--help")[0]
    assert "--compose" in call("inspect", runs["mnist"], "--help")[0]
    assert "nps inspect RUN" in call("--help")[0]


def test_eval_compares_a_fifth_rule_with_its_start(runs):
    """And says so where the start is gone."""
    run = Path(runs["fifth"])
    call("eval", str(run))
    tested = json.loads((run / "test.json").read_text())
    assert len(tested["fifth"]["equal"]) == 4
    assert (run / "test.json").stat().st_size < 100_000
    config = json.loads((run / "config.json").read_text())
    config["config"]["start_from"] = "gone"
    (run / "config.json").write_text(json.dumps(config))
    _, err = call("eval", str(run))
    assert "not compared with the run it started from: gone/seed-0 does not exist" in err
    assert "fifth" not in json.loads((run / "test.json").read_text())


def test_eval_measures_compositions_and_deletions(runs):
    for name, deleted in (("mnist", 4), ("mlp", 0)):
        call("eval", runs[name])
        path = Path(runs[name]) / "test.json"
        tested = json.loads(path.read_text())
        assert len(tested["deletion"]) == deleted
        assert len(tested["composition"]["slot"]) == 5
        assert path.stat().st_size < 100_000
