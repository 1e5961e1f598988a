"""`nps bench` as a user meets it, with sizes that take no time."""

import json
from pathlib import Path

import pytest
import torch

from nps.bench import command, goals
from nps.bench.cases import Case, Group
from nps.bench.report import read
from tests.test_cli import call

TINY = ["bench", "--batch=4", "--rounds=1", "--threads=1", "--budget=60", "--works", "step"]
MODELS = ["--models", "sequential", "gnn-512"]


def test_tables_file_and_figures(tmp_path):
    threads = torch.get_num_threads()
    sizes = ["--slots", "2", "3", "--rules", "2", "4", "--only", "slots", "rules"]
    out, err = call(*TINY, *MODELS, *sizes, "--out", str(tmp_path / "a/b"))
    assert err == ""  # silent when not a terminal
    assert "Over slots" in out
    assert "Over rules" in out
    assert "M=3" in out
    assert torch.get_num_threads() == threads
    names = {path.name for path in (tmp_path / "a/b").iterdir()}
    assert names == {"bench-cpu.json", "cpu-time-over-slots.png", "cpu-time-over-rules.png"}
    assert (tmp_path / "a/b/cpu-time-over-slots.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((tmp_path / "a/b/bench-cpu.json").read_text())
    environment = data["environment"]
    assert environment["torch"] == torch.__version__
    assert environment["threads"] == 1
    assert environment["tf32"] is False
    assert data["centre"] == [4, 2, 2]
    assert len(data["rows"]) == 2 * 3  # the centre is measured once
    assert all(row["ms"] > 0 and row["distance"] > 0 for row in data["rows"])
    shown, _ = call("bench", "--table", str(tmp_path / "a/b/bench-cpu.json"))
    assert shown in out  # all but the last line, which tells what was written


def test_the_file_is_the_bench(tmp_path):
    args = command.BenchArgs(
        out=tmp_path, only=("centre",), batch=(2,), rules=(2,), models=("attention",), rounds=1
    )
    bench = command.run(command.BenchArgs(**{**vars(args), "modes": ("eager",)}))
    (path,) = command.write(bench, tmp_path)
    assert read(path) == bench


def test_what_is_left_out_is_in_the_tables(tmp_path):
    flags = ["--slots", "2", "--rules", "2", "--only", "centre", "--modes", "eager"]
    out, _ = call(*TINY, *MODELS, *flags, "--budget=1e-9", "--out", str(tmp_path))
    assert "Left out" in out
    assert "GNN 512, step, eager, B=4, M=2, N=2: about" in out


def test_goals_are_reported(tmp_path, monkeypatch):
    few, many = (Case("sequential", "forward", "eager", 2, 2, n) for n in (2, 4))
    met = goals.Goal("flat", few, many, 1e9, at_least=False, unit="×")
    missed = goals.Goal("fast", few, None, 0.0, at_least=False, unit="ms")
    monkeypatch.setattr("nps.bench.report.goals", lambda device: [met, missed])
    groups = [Group("goals", (few, many), 60.0)]
    monkeypatch.setattr(command, "goal_groups", lambda device: groups)
    out, _ = call("bench", "--only", "goals", "--rounds=1", "--out", str(tmp_path))
    assert "Over slots" not in out
    assert [line.split("│")[4].strip() for line in out.splitlines() if "│ f" in line] == [
        "yes",
        "no",
    ]
    saved = json.loads((tmp_path / "bench-cpu.json").read_text())["goals"]
    assert [goal["met"] for goal in saved] == [True, False]


def test_quick_is_small_and_the_whole_is_all():
    quick = command.plan(command.BenchArgs(quick=True))[1]
    whole = command.plan(command.BenchArgs())[1]
    assert sum(len(group.cases) for group in quick) < 100
    assert {group.section for group in quick} == {"centre", "slots", "rules"}
    assert {group.section for group in whole} == {"centre", "slots", "rules", "batch", "goals"}
    cuda = command.plan(command.BenchArgs(device="cuda"))[1]
    modes = {group.cases[0].mode for group in cuda if group.section == "slots"}
    assert modes == {"eager", "captured"}
    modes = {group.cases[0].mode for group in cuda if group.section == "centre"}
    assert modes == {"eager", "captured", "compiled", "compiled+captured"}


def test_files_go_to_the_users_runs_unless_out_says_otherwise(tmp_path, monkeypatch):
    """Never into results/, which git tracks."""
    (tmp_path / "results/bench").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    flags = ["--slots", "2", "--rules", "2", "--only", "centre", "--modes", "eager"]
    out, _ = call(*TINY, *MODELS, *flags)
    assert out.endswith("Written: runs/bench/bench-cpu.json\n")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written == [tmp_path / "runs/bench/bench-cpu.json"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--only", "slotz"], "slotz"),
        (["--works", "backward"], "backward"),
        (["--modes", "captured"], "--modes captured: CUDA graphs need --device cuda"),
        (["--models", "gnn-521"], "--models: unknown 'gnn-521'; did you mean gnn-512?"),
        (["--batch", "0"], "--batch: got 0, expected at least 1"),
        (["--slots", "two"], "--slots"),
        (["--rounds", "0"], "--rounds: got 0"),
        (["--threads", "0"], "--threads: got 0"),
        (["--budget", "0"], "--budget: got 0"),
        (["--budget", "nan"], "--budget: got nan"),
        (["--sloths", "3"], "did you mean --slots?"),
        (["--table", "nowhere.json"], "nowhere.json: no such file"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    _, err = call("bench", *flags, code=2)
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "damaged, not JSON"),
        ("[]", "not a bench of this version"),
        ('{"schema": 9}', "not a bench of this version"),
        ('{"schema": 1, "device": "cpu"}', "damaged ('centre')"),
    ],
)
def test_broken_files_are_one_line(tmp_path, text, message):
    path = tmp_path / "bench-cpu.json"
    path.write_text(text)
    _, err = call("bench", "--table", str(path), code=2)
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="says that there is no CUDA device")
def test_missing_cuda_is_reported(tmp_path):
    _, err = call("bench", "--device=cuda", "--out", str(tmp_path / "x"), code=2)
    assert "torch sees no CUDA device" in err
    assert not (tmp_path / "x").exists()


def test_help_has_examples():
    out, _ = call("bench", "--help")
    assert "nps bench --quick" in out
    assert "--only" in out


def test_parts_of_a_sweep_are_shown_and_drawn_as_one(tmp_path):
    for size in ("2", "3"):
        flags = [
            "--only=slots",
            "--works=step",
            "--rounds=1",
            "--batch=2",
            "--rules=2",
            "--budget=60",
        ]
        models = ["--models", "sequential", "gnn-128"]
        call("bench", "--slots", size, f"--out={tmp_path / size}", *flags, *models)
    parts = [str(tmp_path / size / "bench-cpu.json") for size in ("2", "3")]
    _, err = call("bench", "--table", *parts, code=2)
    assert "not measured on one machine around one centre" in err
    whole = json.loads(Path(parts[0]).read_text())
    other = json.loads(Path(parts[1]).read_text()) | {"centre": whole["centre"]}
    Path(parts[1]).write_text(json.dumps(other))
    shown, _ = call("bench", "--table", *parts, "--draw", str(tmp_path / "figures"))
    assert "M=2" in shown
    assert "M=3" in shown
    assert (tmp_path / "figures/cpu-time-over-slots.png").read_bytes().startswith(b"\x89PNG")
