"""The MNIST report from logs alone: what stands where, and what is left out without logs for it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from nps.experiments import EXPERIMENTS
from nps.experiments.mnist.pictures import SEQUENCE
from nps.experiments.mnist.report import summary_table, write_report
from nps.experiments.results import by_variant, read_results
from nps.inspect.pictures import pack
from nps.inspect.report import Figure, Heading, Report, Table, Text, markdown

FLOORS = {"black": 0.021, "copy": 0.033}


def log(folder: Path, preset: str, seed: int, **test: object) -> None:
    run = folder / preset / f"seed-{seed}"
    run.mkdir(parents=True)
    config = {"epochs": 100, "depth": 4}
    saved = {"schema": 1, "experiment": "mnist", "preset": preset, "seed": seed, "config": config}
    sitting = {
        "wall_seconds": 12.0,
        "from_step": 0,
        "to_step": 100,
        "seeds_in_stack": 3,
        "device": "d",
        "torch": "t",
        "commit": "c",
    }
    (run / "config.json").write_text(json.dumps(saved))
    (run / "provenance.json").write_text(json.dumps([sitting]))
    (run / "test.json").write_text(json.dumps({"floors": FLOORS, **test}))


def composed(shift: float) -> dict[str, object]:
    ways = {way: [shift + k / 100 for k in range(5)] for way in ("pictures", "slot")}
    return {"length": [1, 2, 3, 4, 5], **ways, "black": [0.02] * 5, "copy": [0.03] * 5}


def drawn(operations: int = 4) -> dict[str, object]:
    random = np.random.default_rng(0)
    shapes = {"input": (2,), "target": (operations, 2), "output": (operations, 2)}
    shapes |= dict.fromkeys(("truth", "pictures", "slot"), (len(SEQUENCE), 2))
    return {name: pack(random.random((*shape, 64, 64))) for name, shape in shapes.items()}


def cuts(kept: bool) -> list[dict[str, object]]:
    before = [0.004, 0.005, 0.006, 0.007]
    rows = []
    for own in range(4):
        equal = [o != own and (kept or o != 3) for o in range(4)]
        after = [0.05 if o == own else b for o, b in enumerate(before)]
        rows.append(
            {"deleted": own, "rule": 3 - own, "before": before, "after": after, "equal": equal}
        )
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    tmp_path = tmp_path_factory.mktemp("logs")
    table = np.fliplr(np.diag([10, 20, 30, 40])).tolist()
    pictures = drawn()
    for seed, (mse, segregation) in enumerate([(0.004, 1.0), (0.005, 1.0), (0.009, 0.75)]):
        choices = {"segregation": segregation, "table": table, "deletion": cuts(seed != 2)}
        choices |= {"asked_by_operation": 1.0, "changed_image": 1.0 - seed / 4, "nmi": 0.5}
        more = {"composition": composed(mse), "pictures": pictures}
        log(tmp_path, "mnist", seed, mse=mse, **choices, **more)
        log(tmp_path, "mnist-mlp", seed, mse=mse + 0.01, deletion=[], **more)
    added = {
        "before": [0.004] * 4,
        "after": [0.004, 0.004, 0.004, 0.041],
        "equal": [True, True, True, False],
        "mse": 0.0061,
        "black": 0.022,
        "copy": 0.011,
        "uses": [0, 0, 0, 2, 38],
    }
    five = np.diag([10, 20, 30, 40, 50]).tolist()
    choices = {"segregation": 1.0, "changed_image": 1.0, "table": five}
    log(tmp_path, "mnist-fifth", 0, mse=0.006, **choices, fifth=added)
    return tmp_path


@pytest.fixture(scope="module")
def report(folder) -> Report:
    return write_report(folder, EXPERIMENTS["mnist"])


def tables(report: Report) -> list[Table]:
    return [block for block in report.parts if isinstance(block, Table)]


def test_summary_has_paper_ours_and_floors(folder, report):
    rows = {row[0]: row[1:] for row in summary_table(by_variant(read_results(folder))).rows}
    assert rows["NPS (paper's settings)"] == [
        "0.02",
        "0.0050 (0.0040 to 0.0090)",
        "1.000 (0.750 to 1.000)",
        "1 of 3",  # of the two with a diagonal table, one drew without looking
        "12 s for 3 seeds",
    ]
    assert rows["One MLP, no rules"][2:4] == ["–", "–"]
    assert rows["An all-black picture"][1] == "0.0210"
    assert rows["The input itself"][1] == "0.0330"
    assert "| NPS (paper's settings) |" in markdown(tables(report)[0])


def test_roles_of_the_slots_are_reported_where_something_is_chosen(report):
    assert [row[0] for row in tables(report)[1].rows] == ["NPS (paper's settings)"]
    assert tables(report)[1].rows[0][1:3] == ["1.000 (1.000 to 1.000)", "0.750 (0.500 to 1.000)"]


def test_the_papers_table_stands_beside_ours(report):
    ours, fifth = (t for t in tables(report) if "uses on the test set" in t.caption)
    assert ours.columns[1:] == [
        *(f"rule {i}" for i in range(4)),
        *(f"paper {i}" for i in range(1, 5)),
    ]
    assert ours.rows[0] == ["rotate right", "0", "0", "0", "10", "0", "0", "5030", "0"]
    assert ours.rows[3] == ["translate down", "40", "0", "0", "0", "5039", "0", "0", "0"]
    assert fifth.rows[4] == ["flip", "0", "0", "0", "0", "50"]


def test_composition_both_ways_for_both_models(report):
    (table,) = (t for t in tables(report) if t.columns[0] == "Operations")
    assert table.columns[1:] == [
        "NPS, through pictures",
        "NPS, in the slot",
        "One MLP, no rules, through pictures",
        "One MLP, no rules, in the slot",
        "Black",
        "Copy",
    ]
    assert table.rows[2][0] == "3"
    assert table.rows[2][1] == "0.0250 (0.0240 to 0.0290)"
    assert table.rows[2][-2:] == ["0.0200", "0.0300"]
    *_, about = (b for b in report.parts if isinstance(b, Text))
    assert "transformed 0 to 3 times before" in about.text


def test_surgery_says_yes_and_no(report):
    deleted, added = (t for t in tables(report) if "Equal" in t.columns)
    first = ["rotate right", "3", "0.0040", "0.0500", "0.0050 0.0060 0.0070"]
    assert deleted.rows[0] == [*first, "0.0050 0.0060 0.0070", "yes", "2 of 3"]
    assert deleted.rows[3][-2:] == ["yes", "3 of 3"]
    assert [row[3:] for row in added.rows[:4]] == [["yes", "1 of 1"]] * 3 + [["no", "0 of 1"]]
    assert added.rows[3][1:3] == ["0.0040", "0.0410"]
    assert added.rows[4] == ["flip", "–", "0.0061", "–", "–"]
    assert "0.0220 (all black) and 0.0110 (the input" in added.caption
    assert "38 of 40" in added.caption


def test_figures_are_drawn_from_the_log(report):
    figures = {b.name: b for b in report.parts if isinstance(b, Figure)}
    assert set(figures) == {"grid-mnist", "grid-mnist-mlp", "composition", "strip"}
    assert all(figure.image.startswith(b"\x89PNG") for figure in figures.values())


def test_without_matplotlib_there_are_tables_and_a_word(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    blocks = write_report(folder, EXPERIMENTS["mnist"]).parts
    assert not any(isinstance(block, Figure) for block in blocks)
    assert sum(isinstance(b, Text) and "[plots]" in b.text for b in blocks) == 2


def test_logs_with_less_give_a_shorter_report(tmp_path):
    log(tmp_path, "mnist-mlp", 0, mse=0.01, deletion=[])
    log(tmp_path, "mnist-my-own", 0, mse=0.02)
    report = write_report(tmp_path, EXPERIMENTS["mnist"])
    headings = [block.text for block in report.parts if isinstance(block, Heading)]
    assert "Composition" not in headings
    assert not any("Surgery" in heading for heading in headings)
    assert [row[0] for row in tables(report)[0].rows][:2] == ["One MLP, no rules", "mnist-my-own"]
