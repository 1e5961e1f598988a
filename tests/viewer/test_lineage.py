"""Where models come from: the training that edits share, what was edited, how long it was."""

from __future__ import annotations

import json

from nps.viewer import lineage
from tests.viewer.fake import FakeRun, write_folder

NAMES = ("stay", "push")


def test_edits_share_the_training(tmp_path):
    plain = FakeRun(None, 0, write_folder(tmp_path / "plain", "a"))
    edited = FakeRun(None, 0, write_folder(tmp_path / "edited", "a", {"disabled": [1]}))
    assert lineage.of(plain) == lineage.of(edited) == "a"
    assert lineage.of(FakeRun(None)) is None
    assert lineage.edited(plain, NAMES) is None
    assert lineage.edited(FakeRun(None), NAMES) is None
    assert lineage.edited(edited, NAMES) == "push off"


def test_edits_of_another_version(tmp_path):
    run = FakeRun(None, 0, write_folder(tmp_path / "run", "a", {"painted": [1]}))
    assert lineage.edited(run, NAMES) == "edited in a way that this nps does not know"
    path = run.folder / "edits.json"
    path.write_text(json.dumps({"schema": 1}))
    assert lineage.edited(run, NAMES) is None


def test_a_short_training_is_named():
    run = FakeRun(None)
    assert lineage.training(run) is None
    run.card = {"changed": {"epochs": [15, 100], "hidden_dim": [64, 512]}, "note": ""}
    found = lineage.training(run)
    assert found == "a short training, 15 of 100 epochs, 1 other setting changed"
    for changed in ({}, {"hidden_dim": [64, 512]}, {"epochs": [200, 100]}):
        run.card = {"changed": changed, "note": "Why."}
        assert lineage.training(run) is None


def test_a_reason_for_another_training_is_told():
    """That both models had the same schedule, say: then a shorter one is no fault."""
    run = FakeRun(None)
    run.card = {"changed": {"epochs": [80, 100]}, "note": "To compare with another: as long."}
    assert lineage.training(run) == "80 of 100 epochs. To compare with another: as long"
