"""Sweeps as a user meets them: skipped, extended, stopped, killed, failed, and in one table."""

import functools
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from nps import cli
from nps.jobs import cluster
from nps.jobs.processes import End, Job
from nps.training.loop import Settings
from nps.training.run import Run
from tests.test_cli import SMALL, call, start

SHORT = ["--epochs=1", *SMALL]
LONG = ["--epochs=30", *SMALL]


@pytest.fixture
def trained(monkeypatch):
    """Train in this process, which is faster; the folders trained are listed."""
    folders = []

    class Inline:
        def __init__(self, job):
            folders.append(f"{job.folder.parent.name}/{job.folder.name}")
            cli.main(["train", *job.arguments, "--out", str(job.folder)])

        def poll(self):
            return End(0, "")

    monkeypatch.setattr("nps.jobs.sweep.Process", Inline)
    return folders


def sweep(out: Path, *args: str, code: int = 0) -> tuple[str, str]:
    return call("sweep", "arithmetic", "--out", str(out), *args, code=code)


def test_all_points_and_seeds_are_trained_once_and_a_larger_sweep_extends(tmp_path, trained):
    args = ["--grid", "rules=2,3", "--seeds=2", *SHORT]
    _, err = sweep(tmp_path, *args)
    assert "4 runs" in err
    assert trained == ["rules=2/seed-0", "rules=3/seed-0", "rules=2/seed-1", "rules=3/seed-1"]
    assert Run(tmp_path / "rules=3/seed-1").read()["config"]["rules"] == 3
    record = json.loads((tmp_path / "sweep.json").read_text())
    assert record["preset"] == "arithmetic"
    assert record["grid"] == {"rules": [2, 3]}
    assert record["seeds"] == 2

    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/test.json")}
    assert len(before) == 4
    table = (tmp_path / "table.json").read_bytes()
    trained.clear()
    _, err = sweep(tmp_path, *args)
    assert "4 complete, 0 to train" in err
    assert trained == []
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (tmp_path / "table.json").read_bytes() == table

    sweep(tmp_path, "--grid", "rules=2,3,4", "--seeds=3", *SHORT)
    assert trained == [
        "rules=4/seed-0",
        "rules=4/seed-1",
        *(f"rules={n}/seed-2" for n in (2, 3, 4)),
    ]
    assert json.loads((tmp_path / "sweep.json").read_text())["seeds"] == 3


def test_what_is_not_whole_is_trained_again_and_what_was_tested_otherwise_is_tested(
    tmp_path, trained
):
    args = ["--grid", "rules=2,3", *SHORT]
    sweep(tmp_path, *args)
    (weights,) = tmp_path.glob("rules=2/seed-0/checkpoints/*/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    call("eval", str(tmp_path / "rules=3/seed-0"), "--which", "last")
    trained.clear()
    sweep(tmp_path, *args)
    assert trained == ["rules=2/seed-0"]
    assert json.loads((tmp_path / "rules=3/seed-0/test.json").read_text())["which"] == "best"


def test_the_table_by_hand(tmp_path, trained):
    out, _ = sweep(
        tmp_path, "--grid", "rules=2,3", "--grid", "self-context=true,false", "--seeds=3", *SHORT
    )
    rows = (tmp_path / "table.md").read_text().splitlines()
    head = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert head[:5] == ["rules", "self_context", "seeds", "mse", "segregation"]
    points = json.loads((tmp_path / "table.json").read_text())["points"]
    for row, point, rules, own in zip(
        rows[2:], points, (2, 2, 3, 3), ("true", "false") * 2, strict=True
    ):
        runs = [tmp_path / f"rules={rules},self_context={own}/seed-{s}" for s in range(3)]
        mses = [json.loads((run / "test.json").read_text())["mse"] for run in runs]
        assert point["metrics"]["mse"]["values"] == mses
        assert point["metrics"]["mse"]["median"] == statistics.median(mses) == sorted(mses)[1]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[:3] == [str(rules), own, "3"]
        assert cells[3] == f"{sorted(mses)[1]:.3g} ({min(mses):.3g} to {max(mses):.3g})"
        assert cells[3] in out


def test_no_grid_is_the_preset_with_several_seeds(tmp_path, trained):
    sweep(tmp_path, "--seeds=2", *SHORT)
    assert trained == ["arithmetic/seed-0", "arithmetic/seed-1"]
    assert (tmp_path / "table.md").read_text().splitlines()[2].startswith("| arithmetic | 2 |")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--grid", "rulez=2"], "unknown field 'rulez'; did you mean rules?"),
        (["--grid", "rules=2,0"], "--grid rules=0: config: rules: got 0, expected at least 1"),
        (["--grid", "rules=2", "--rules=3"], "rules: got a flag and --grid values"),
        (["--seeds=0"], "--seeds: got 0, expected at least 1"),
        (["--retries=-1"], "--retries: got -1, expected at least 0"),
        (["--on=slurm"], "slurm"),
    ],
)
def test_mistakes_are_reported_before_anything_starts(tmp_path, args, message):
    _, err = sweep(tmp_path / "out", *args, code=2)
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("out", ["", " "])
def test_an_empty_out_is_refused(tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    _, err = call("sweep", "arithmetic", "--epochs=1", "--out", out, code=2)
    assert "--out: got an empty path, expected a folder" in err
    assert not list(tmp_path.iterdir())


def test_another_config_in_the_folder_is_refused(tmp_path, trained):
    sweep(tmp_path, "--grid", "rules=2", *SHORT)
    before = (tmp_path / "sweep.json").read_bytes()
    _, err = sweep(tmp_path, "--grid", "rules=2", *SHORT, "--dropout=0.1", code=2)
    assert "holds another config (dropout: 0.35 -> 0.1)" in err
    assert (tmp_path / "sweep.json").read_bytes() == before
    call("train", "arithmetic", "--out", str(tmp_path / "rules=3/seed-0"), "--rules=4", *SHORT)
    _, err = sweep(tmp_path, "--grid", "rules=2,3", *SHORT, code=2)
    assert "rules=3/seed-0: holds another config (rules: 4 -> 3)" in err


def test_a_run_that_fails_is_reported_and_the_others_finish(tmp_path):
    (tmp_path / "rules=3").write_text("a file where a folder should be")
    out, err = sweep(tmp_path, "--grid", "rules=2,3", *SHORT, code=1)
    assert "rules=3/seed-0 failed: cannot write to" in err
    assert "1 of 2 runs failed" in err.splitlines()[-1]
    assert "0 of 1" in out
    table = json.loads((tmp_path / "table.json").read_text())
    assert [point["seeds"] for point in table["points"]] == [[0], []]
    assert list(table["failed"]) == ["rules=3/seed-0"]


def test_ray_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    _, err = sweep(tmp_path, "--on=ray", *SHORT, code=2)
    assert "pip install 'neural-production-systems[cluster]'" in err


def test_a_cluster_that_is_not_there_is_named(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    _, err = sweep(tmp_path, "--on=ray", *SHORT, code=2)
    assert "--on ray: cannot reach RAY_ADDRESS=127.0.0.1:1" in err


# -- killed ----------------------------------------------------------------------------------------


def wait_for(condition) -> None:
    deadline = time.monotonic() + 240  # starting Ray takes long while other tests run
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def trainer(run: Path) -> int:
    """The process that trains in a folder, by its lock; 0 if there never was one."""
    lock = run / ".lock"
    return int((lock.read_text() if lock.exists() else "") or 0)


def rows(run: Path) -> int:
    log = run / "metrics.jsonl"
    return log.read_text().count("\n") if log.exists() else 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The logs of whole runs with 2 and 3 rules."""
    folder = tmp_path_factory.mktemp("undisturbed")
    logs = {}
    for rules in (2, 3):
        run = folder / str(rules)
        call("train", "arithmetic", "--out", str(run), f"--rules={rules}", *LONG)
        logs[rules] = (run / "metrics.jsonl").read_bytes()
    return logs


def train_a_part(run: Path, steps: int) -> None:
    """As `nps train --rules=2` with LONG, stopped and saved after some steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nps.training.loop.Settings", functools.partial(Settings, stop_at=steps))
        call("train", "arithmetic", "--out", str(run), "--rules=2", *LONG, code=143)


def check(out: Path, undisturbed: dict[int, bytes]) -> None:
    for rules, log in undisturbed.items():
        assert (out / f"rules={rules}/seed-0/metrics.jsonl").read_bytes() == log
    points = json.loads((out / "table.json").read_text())["points"]
    assert [point["seeds"] for point in points] == [[0], [0]]


def test_a_killed_training_goes_on_from_its_checkpoint(tmp_path, undisturbed):
    run = tmp_path / "rules=2/seed-0"
    train_a_part(run, 25)
    before = trainer(run)

    def kill() -> None:
        wait_for(lambda: trainer(run) not in (0, before) and rows(run) > 4)
        os.kill(trainer(run), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    _, err = sweep(tmp_path, "--grid", "rules=2,3", "--workers=2", *LONG)
    killer.join()
    message = f"{run}: its process was killed by signal 9; restarting from its last checkpoint"
    assert err.count(message) == 1
    check(tmp_path, undisturbed)
    first, killed, last = json.loads((run / "provenance.json").read_text())
    assert first["to_step"] == killed["from_step"] == last["from_step"] == 25
    assert killed["to_step"] == 25  # as recorded at its start


def test_trainings_on_a_cluster_know_where_data_is(tmp_path, monkeypatch):
    sent, seen = [], []

    class Ended:
        def __init__(self, job):
            seen.append(os.environ.get("NPS_DATA"))

        def poll(self):
            return End(0, "")

    class Task:
        def remote(self, *args):
            sent.append(args)

    monkeypatch.setenv("NPS_DATA", "/files")
    cluster._Task(Task(), Job(tmp_path, (), epochs=1))
    monkeypatch.setenv("NPS_DATA", "/of/the/worker")
    monkeypatch.setattr(cluster, "Process", Ended)
    monkeypatch.setattr(signal, "signal", lambda *args: None)
    cluster._train(*sent[0])
    assert seen == ["/files"]


@pytest.fixture
def own_ray(monkeypatch):
    """A Ray for this test alone, with its files in a short path, as its sockets need."""
    pytest.importorskip("ray")
    scratch = tempfile.mkdtemp(prefix="nps-", dir="/tmp")
    monkeypatch.setenv("RAY_TMPDIR", scratch)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    yield
    shutil.rmtree(scratch, ignore_errors=True)


def test_a_killed_ray_worker_is_replaced(tmp_path, undisturbed, own_ray):
    run = tmp_path / "rules=2/seed-0"
    command = ["sweep", "arithmetic", "--out", str(tmp_path), "--grid", "rules=2,3", "--on=ray"]
    process = start(*command, *LONG)
    wait_for(lambda: rows(run) >= 1 or process.poll() is not None)
    status = Path(f"/proc/{trainer(run)}/status").read_text()
    worker = int(status.partition("PPid:")[2].split()[0])
    os.kill(worker, signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err.count("its Ray worker died (WorkerCrashedError); restarting") == 1
    check(tmp_path, undisturbed)


@pytest.mark.slow
def test_a_stop_reaches_the_trainings_on_ray(tmp_path, own_ray):
    run = tmp_path / "rules=2/seed-0"
    command = ["sweep", "arithmetic", "--out", str(tmp_path), "--grid=rules=2", "--on=ray"]
    process = start(*command, "--epochs=10000", *SMALL)
    wait_for(lambda: rows(run) >= 1 or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert list(run.glob("checkpoints/step-*/manifest.json"))
    with Run(run).writing():  # nobody holds it any more
        pass


def test_help_shows_the_grid_and_the_flags_of_the_config():
    assert "nps sweep arithmetic --grid rules=1,2,4,6 --seeds 5" in call("sweep", "--help")[0]
    out, _ = call("sweep", "arithmetic", "--help")
    assert "--grid NAME=VALUE,VALUE" in out
    assert "--learning-rate" in out


def test_the_terminal_shows_the_main_metrics_of_a_world_model(tmp_path, monkeypatch, trained):
    monkeypatch.setenv("COLUMNS", "80")
    size = ["--train-episodes=2", "--validation-episodes=2", "--test-episodes=2", "--hidden-dim=8"]
    flags = [*size, "--epochs=1", "--batch-size=50", f"--out={tmp_path}"]
    out, _ = call("sweep", "shapes-gnn", "--grid", "learning_rate=0.01,0.001", *flags)
    table = [line for line in out.splitlines() if line.startswith("│ 0.0")]
    assert [len(line.split("│")) for line in table] == [9, 9]  # two edges, and seven columns
    assert all(cell.strip() for line in table for cell in line.split("│")[1:-1])
    assert "more metrics are in table.md" in " ".join(out.split())
    page = (tmp_path / "table.md").read_text()
    assert "mrr distinct strict 10" in page
    assert len(json.loads((tmp_path / "table.json").read_text())["points"][0]["metrics"]) > 50
