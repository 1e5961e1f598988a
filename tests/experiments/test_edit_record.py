"""The record of an edited model, and where the model that was edited is found again."""

import json
import shutil

import pytest

from nps.errors import UserError
from nps.experiments.edit_record import find_original, read_record
from nps.zoo import HERE
from tests.viewer.fake import write_folder

EDITS = {"disabled": [0]}


def place(folder):
    return find_original(folder, read_record(folder))


def test_it_is_found_beside_the_edited_one(tmp_path):
    plain = write_folder(tmp_path / "plain", "a")
    edited = write_folder(tmp_path / "edited", "a", EDITS)
    assert read_record(plain) is None
    assert place(edited) == plain
    shutil.move(plain, tmp_path / "moved")
    assert place(edited) is None
    shutil.move(tmp_path / "moved", tmp_path / "seeds" / "plain")
    assert place(edited) == tmp_path / "seeds" / "plain"


def test_another_run_of_the_name_is_not_taken_for_it(tmp_path):
    write_folder(tmp_path / "plain", "b")
    edited = write_folder(tmp_path / "edited", "a", EDITS)
    assert place(edited) is None
    (tmp_path / "plain" / "config.json").write_text("{")
    assert place(edited) is None


def test_a_model_that_ships_is_found_by_name(tmp_path):
    saved = json.loads((HERE / "weights" / "blocks-best" / "config.json").read_text())
    edited = write_folder(tmp_path / "edited", saved["id"], EDITS)
    path = edited / "edits.json"
    record = json.loads(path.read_text())
    record["of"] |= {"folder": "blocks-best", "experiment": "blocks"}
    path.write_text(json.dumps(record))
    assert place(edited) == HERE / "weights" / "blocks-best"
    record["of"]["folder"] = "../plain"
    path.write_text(json.dumps(record))
    write_folder(tmp_path.parent / f"{tmp_path.name}-beside" / "plain", saved["id"])
    assert place(edited) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}'])
def test_damage_is_named(tmp_path, text):
    edited = write_folder(tmp_path / "edited", "a", EDITS)
    (edited / "edits.json").write_text(text)
    with pytest.raises(UserError, match=r"edits\.json"):
        read_record(edited)
