"""`nps table --add`: runs join a table, or nothing changes."""

import pytest

from nps.experiments.results import read_results, read_runs
from tests.experiments.runs import session, write_run
from tests.test_cli import call

CURVE = [{"epoch": 1, "step": 2}]


def write(folder, seed=0, mse=0.5, **changes):
    how = {
        "test": {"mse": mse},
        "sessions": [session(0, 1, 1.0)],
        "curve": [{"epoch": 1, "step": 2}],
    }
    return write_run(folder / f"seed-{seed}", seed=seed, **{**how, **changes})


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_a_folder_of_seeds_and_a_folder_of_variants(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / "runs" / name, 0)
        write(tmp_path / "runs" / name, 1)
    to = tmp_path / "results/mnist"
    out, _ = call("table", "--add", str(tmp_path / "runs/a/seed-1"), "--to", str(to), "--published")
    assert out == f"{to}: 1 run added; it has 1\n"
    assert set(files(to)) == {"runs.jsonl.xz", "curves.jsonl.xz"}
    call("table", "--add", str(tmp_path / "runs/b"), "--to", str(to))
    call("table", "--add", str(tmp_path / "runs"), f"--to={to}", "--group=quick")
    assert [(run.address, run.published) for run in read_runs(to)] == [
        ("a/seed-1", True),
        ("b/seed-0", False),
        ("b/seed-1", False),
        *((f"quick/{name}/seed-{seed}", False) for name in "ab" for seed in (0, 1)),
    ]
    assert read_runs(to)[0].curve() == CURVE
    listed, _ = call("table", str(to), "--list")
    assert "| – | b | 2 | 2 | 0 |" in listed
    assert "| – | a | 1 | 1 | 1 |" in listed


def test_adding_in_parts_or_at_once_gives_the_same_bytes(tmp_path):
    for seed in range(3):
        write(tmp_path / "a", seed)
    runs = [str(tmp_path / f"a/seed-{seed}") for seed in range(3)]
    call("table", "--add", *runs, "--to", str(tmp_path / "once"))
    for run in reversed(runs):
        call("table", "--add", run, "--to", str(tmp_path / "parts"))
    assert files(tmp_path / "once") == files(tmp_path / "parts")


def test_a_duplicate_needs_replace_and_stays_published(tmp_path):
    to = str(tmp_path / "t")
    first = write(tmp_path / "first/a", mse=0.5)
    second = write(tmp_path / "second/a", mse=0.25)
    call("table", "--add", str(first), "--to", to, "--published")
    before = files(tmp_path / "t")
    _, err = call("table", "--add", str(second), "--to", to, code=2)
    assert "already has a/seed-0; to replace it: --replace" in err
    assert files(tmp_path / "t") == before
    out, _ = call("table", "--add", str(second), "--to", to, "--replace")
    assert "0 runs added, 1 replaced; it has 1" in out
    (run,) = read_results(tmp_path / "t")
    assert run.test == {"mse": 0.25}
    _, err = call("table", "--add", str(first), str(second), "--to", to, "--replace", code=2)
    assert "would be a/seed-0, and so would" in err
    call("table", "--add", str(first), str(second), "--to", to, "--variant=b", code=2)
    call("table", "--add", str(first), "--to", to, "--variant=b")
    assert [each.variant for each in read_runs(tmp_path / "t")] == ["a", "b"]


def test_the_game_of_an_atari_run_is_its_group(tmp_path):
    write(tmp_path / "atari-nps", experiment="atari", preset="atari-nps", config={"game": "pong"})
    call("table", "--add", str(tmp_path / "atari-nps"), "--to", str(tmp_path / "t"))
    assert [run.address for run in read_runs(tmp_path / "t")] == ["pong/atari-nps/seed-0"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": None}, "not tested; first: nps eval "),
        ({"experiment": "blocks"}, "a table of mnist, got a run of blocks"),
        ({"experiment": "mnits"}, "unknown experiment 'mnits'; did you mean mnist?"),
    ],
)
def test_what_cannot_join_is_refused_and_nothing_changes(tmp_path, changes, message):
    to = tmp_path / "t"
    call("table", "--add", str(write(tmp_path / "a")), "--to", str(to))
    before = files(to)
    good, bad = write(tmp_path / "good"), write(tmp_path / "bad", **changes)
    _, err = call("table", "--add", str(bad), "--to", str(to), code=2)
    assert message in err
    assert err.count("\n") == 1
    call("table", "--add", str(good), str(bad), "--to", str(to), code=2)
    assert files(to) == before


def test_mistakes_are_one_line(tmp_path):
    empty = str(tmp_path)
    for args, message in (
        ((empty, "--to", str(tmp_path / "t")), "no run folder, and no folder of run folders"),
        ((empty,), "--to"),
        (("--to", str(tmp_path / "t")), "expected at least one run"),
    ):
        _, err = call("table", "--add", *args, code=2)
        assert message in err
        assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    out, _ = call("table", "--add", "--help")
    assert "--published" in out
    assert "nps table --add runs/atari/pong" in out


def test_a_stop_while_writing_leaves_the_old_table(tmp_path, monkeypatch):
    to = tmp_path / "t"
    call("table", "--add", str(write(tmp_path / "a")), "--to", str(to))
    before = files(to)["runs.jsonl.xz"]

    def stop(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nps.files.os.replace", stop)
    _, err = call("table", "--add", str(write(tmp_path / "b")), "--to", str(to), code=1)
    assert f"cannot write to {to}: No space left on device" in err
    monkeypatch.undo()
    assert files(to)["runs.jsonl.xz"] == before
    assert set(files(to)) == {"runs.jsonl.xz", "curves.jsonl.xz"}
    assert [run.variant for run in read_runs(to)] == ["a"]
