"""Runs from folders and from tables are the same to a reader."""

import dataclasses

import pytest

from nps.errors import UserError
from nps.experiments.collect import add, to_row
from nps.experiments.results import by_variant, read_results, read_run, read_runs
from nps.experiments.tables import RUNS, write_table
from tests.experiments.runs import session, write_run
from tests.ordinary_user import as_ordinary_user

CURVE = [{"epoch": 1, "step": 2, "loss": 1 / 3, "validation": {"table": [[1, 2]], "loss": 2.5e-9}}]


@pytest.fixture
def folder(tmp_path):
    """Two variants, one with two seeds, out of order on disk."""
    for variant, seed in (("b", 10), ("b", 9), ("a", 0)):
        write_run(
            tmp_path / "runs" / variant / f"seed-{seed}",
            preset="mnist",
            seed=seed,
            config={"epochs": 2, "depth": 4},
            test={"mse": 0.1 + seed / 3, "pictures": {"x": [1, 2.5, None]}},
            sessions=[session(0, 5, 1.25), session(5, 9, 1.5)],
            curve=CURVE,
        )
    return tmp_path / "runs"


@pytest.fixture
def table(folder, tmp_path):
    """The same runs as a table, published."""
    runs = [dataclasses.replace(run, published=True) for run in read_runs(folder)]
    add(tmp_path / "table", runs)
    return tmp_path / "table"


def contents(run):
    return {**vars(run), "path": None, "read_curve": None, "published": None}


def test_a_table_gives_what_the_folders_give(folder, table):
    from_folders, from_table = read_results(folder), read_results(table)
    assert [contents(run) for run in from_table] == [contents(run) for run in from_folders]
    assert [(run.variant, run.seed) for run in from_table] == [("a", 0), ("b", 9), ("b", 10)]
    assert from_table[0].path == table / "a/seed-0"
    assert from_table[0].seconds == 2.75


def test_rows_of_older_versions_have_the_new_names(tmp_path):
    """Tables keep a config as it was saved; whoever reads it sees today's names."""
    old = {"epochs": 2, "image_asks": False}
    folder = write_run(tmp_path / "runs/a/seed-0", config=old, test={}, sessions=[session(0, 5, 1)])
    row = {**to_row(read_run(folder)), "config": old, "published": True}
    (tmp_path / "table").mkdir()
    write_table(tmp_path / "table" / RUNS, "runs", "mnist", [row])
    (run,) = read_results(tmp_path / "table")
    assert run.config == read_run(folder).config == {"epochs": 2, "image_selects": False}


def test_curves_are_those_of_the_log_to_six_digits(folder, table):
    for run in read_results(folder):
        assert run.curve() == CURVE
    for run in read_results(table):
        assert run.curve() == [{**CURVE[0], "loss": 0.333333}]


def test_a_table_without_curves_still_has_results(table):
    (table / "curves.jsonl.xz").unlink()
    assert [run.curve() for run in read_results(table)] == [[], [], []]


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_parts_have_the_same_addresses_in_both(kind, request):
    root = request.getfixturevalue(kind)
    assert [run.seed for run in read_results(root / "b")] == [9, 10]
    (one,) = read_results(root / "b/seed-10")
    assert (one.variant, one.seed) == ("b", 10)


def test_groups_are_one_level_further_down(tmp_path):
    for game in ("pong", "qbert"):
        write_run(tmp_path / game / "nps/seed-0", test={})
    both = read_results(tmp_path)
    assert [(run.group, run.variant) for run in both] == [("pong", "nps"), ("qbert", "nps")]
    with pytest.raises(UserError, match="expected one run of nps with seed 0"):
        by_variant(both)
    write_run(tmp_path / "nps/seed-0", test={})
    everything = read_results(tmp_path)
    assert [run.group for run in everything] == ["", "pong", "qbert"]
    assert [run.group for run in by_variant(everything)["nps"]] == [""]
    assert [run.group for run in by_variant(everything[1:2])["nps"]] == ["pong"]


def test_known_variants_come_first_in_their_order(tmp_path):
    for name in ("a", "gnn", "mine", "nps"):
        for seed in (1, 0):
            write_run(tmp_path / f"{name}/seed-{seed}", seed=seed, test={})
    found = by_variant(read_results(tmp_path), ("nps", "none", "gnn"))
    assert list(found) == ["nps", "gnn", "a", "mine"]
    assert [run.seed for run in found["nps"]] == [0, 1]


def test_a_run_that_is_its_own_folder_is_called_after_its_preset(tmp_path, monkeypatch):
    write_run(tmp_path / "mine", preset="mnist-mlp", test={})
    assert read_run(tmp_path / "mine").variant == "mnist-mlp"
    write_run(tmp_path / "a/seed-3", seed=3, test={})
    monkeypatch.chdir(tmp_path / "a/seed-3")
    assert read_run(type(tmp_path)(".")).variant == "a"


def test_only_what_is_tested_and_published_is_shown_of_a_table(tmp_path, folder):
    runs = read_runs(folder)
    quick = [dataclasses.replace(run, group="quick") for run in runs]
    add(tmp_path / "t", [dataclasses.replace(runs[0], published=True), *quick])
    assert [run.address for run in read_results(tmp_path / "t")] == ["a/seed-0"]
    assert len(read_runs(tmp_path / "t")) == 4
    assert [run.address for run in read_results(tmp_path / "t/quick/b")] == [
        "quick/b/seed-9",
        "quick/b/seed-10",
    ]
    add(tmp_path / "none", quick)
    with pytest.raises(UserError, match="no published runs in it; all runs: nps table"):
        read_results(tmp_path / "none")
    with pytest.raises(UserError, match=r"no runs in 'quik'; did you mean quick\?"):
        read_results(tmp_path / "t/quik")


def test_runs_in_a_folder_that_cannot_be_listed_are_not_left_out(folder):
    (folder / "a").chmod(0o300)
    with as_ordinary_user(), pytest.raises(PermissionError, match="runs/a"):
        read_results(folder)
    (folder / "a").chmod(0o700)


def test_nothing_to_show_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no tested runs"):
        read_results(tmp_path)
    write_run(tmp_path / "a/seed-0")
    with pytest.raises(UserError, match="none of its 1 runs has been tested"):
        read_results(tmp_path)
    assert [run.tested for run in read_runs(tmp_path)] == [False]


def test_runs_of_two_experiments_are_refused(tmp_path):
    write_run(tmp_path / "a/seed-0", "atari", test={})
    write_run(tmp_path / "b/seed-0", "blocks", test={})
    with pytest.raises(
        UserError, match=r"b/seed-0: a run of blocks, but .*a/seed-0 is one of atari"
    ):
        read_results(tmp_path)
