"""The command line as a user meets it: real processes, real signals, one-line errors."""

import contextlib
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import nps
from nps import cli
from nps.errors import UserError

SMALL = [
    "--train-examples=640",
    "--validation-examples=50",
    "--test-examples=50",
    "--validate-every=1",
]


def call(*args: str, code: int = 0) -> tuple[str, str]:
    """Run a command in this process and return what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(args)
            ended = 0
        except SystemExit as stop:
            ended = int(stop.code or 0)
    assert ended == code, (ended, err.getvalue())
    return out.getvalue(), err.getvalue()


def evaluated(run: Path) -> dict[str, Any]:
    """The metrics of `nps eval`."""
    call("eval", str(run))
    metrics: dict[str, Any] = json.loads((run / "test.json").read_text())
    return metrics


def start(*args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "nps", *args]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def wait_for(logs: Sequence[Path], seconds: float = 90.0) -> None:
    """Until each of the metric logs has begun."""
    deadline = time.monotonic() + seconds
    while not all(log.exists() and log.stat().st_size for log in logs):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_train_resume_eval_load(tmp_path):
    run = str(tmp_path / "run")
    train = ["train", "arithmetic", "--out", run, "--epochs=2", "--seed=3", *SMALL]
    out, err = call(*train)
    assert "trained" in out
    assert err == ""  # silent when not a terminal
    assert "complete, 20 steps" in call(*train)[1]
    out, _ = call("eval", run)
    assert re.search(r"Error \(MSE\) +│ +0\.\d+ │ +0\.\d+ │ +copying the input", out)
    assert "rule 3:" in out
    assert "nmi" not in out
    out, _ = call("eval", run, "--all")
    assert re.search(r"mse +0\.\d+", out)
    assert re.search(r"nmi +0\.\d+", out)
    tested = json.loads((tmp_path / "run/test.json").read_text())
    assert sum(map(sum, tested["table"])) == 50
    model = nps.load(run).model
    assert not model.training
    last = nps.load(tmp_path / "run/checkpoints/step-00000020", which="last").model
    assert model.layer.rules.embedding.shape == last.layer.rules.embedding.shape == (4, 12)
    provenance = json.loads((tmp_path / "run/provenance.json").read_text())
    assert provenance[0]["from_step"] == 0
    assert provenance[0]["to_step"] == 20
    assert str(tmp_path) not in provenance[0]["device"]


def test_seeds_become_runs_of_their_own(tmp_path):
    train = ["train", "arithmetic", "--out", str(tmp_path / "runs"), "--epochs=2", *SMALL]
    out, _ = call(*train, "--seeds=2")
    assert out.count("trained, best validation score") == 2
    _, err = call(*train, "--seeds=3", "--at-once=1")  # one more
    assert err.count("complete, 20 steps") == 2
    for seed in range(3):
        alone = tmp_path / f"alone-{seed}"
        call("train", "arithmetic", "--out", str(alone), "--epochs=2", f"--seed={seed}", *SMALL)
        ours = evaluated(tmp_path / f"runs/seed-{seed}")
        assert ours["mse"] == pytest.approx(evaluated(alone)["mse"], rel=1e-4)
        assert nps.load(tmp_path / f"runs/seed-{seed}").model.layer.rules.embedding.shape == (4, 12)
    config = json.loads((tmp_path / "runs/seed-2/config.json").read_text())
    assert config["seed"] == 2
    assert "seeds: got 0" in call(*train, "--seeds=0", code=2)[1]
    assert "at-once: got 0" in call(*train, "--at-once=0", code=2)[1]


def test_a_stack_saves_on_sigterm_and_goes_on(tmp_path):
    flags = ["train", "arithmetic", "--out", str(tmp_path), "--epochs=3000", "--seeds=2", *SMALL]
    process = start(*flags)
    wait_for([tmp_path / f"seed-{s}/metrics.jsonl" for s in range(2)])
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    steps = {path.name for path in tmp_path.glob("seed-*/checkpoints/step-*")}
    assert len(steps) == 1  # both at the same step


def test_tensorboard_logs_are_written_on_request(tmp_path):
    run = tmp_path / "run"
    call("train", "arithmetic", "--out", str(run), "--epochs=1", "--tensorboard", *SMALL)
    events = list((run / "tensorboard").glob("events.out.tfevents.*"))
    assert len(events) == 1
    assert b"loss" in events[0].read_bytes()


def test_progress_is_shown_in_a_terminal(tmp_path):
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "nps", "train", "arithmetic", "--epochs=20", *SMALL]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env=environment,
    )
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal closes when the process ends
        while data := os.read(master, 4096):
            shown += data
    assert process.wait() == 0
    text = shown.decode()
    assert "200 steps" in text.replace("/200", "/200 ").replace("  ", " ")
    assert "loss" in text


def test_another_config_in_the_folder_is_refused_with_a_diff(tmp_path):
    run = str(tmp_path / "run")
    call("train", "arithmetic", "--out", run, "--epochs=1", *SMALL)
    before = (tmp_path / "run/config.json").read_bytes()
    _, err = call("train", "arithmetic", "--out", run, "--epochs=1", "--rules=6", *SMALL, code=2)
    assert "rules: 4 -> 6" in err
    assert (tmp_path / "run/config.json").read_bytes() == before
    call("train", "arithmetic", "--out", run, "--epochs=1", "--rules=6", "--fresh", *SMALL)
    assert nps.load(run).model.layer.rules.embedding.shape[0] == 6


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
def test_signal_saves_and_resume_equals_the_uninterrupted_run(tmp_path, signum, code):
    flags = ["--epochs=40", *SMALL]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    call("train", "arithmetic", "--out", str(whole), *flags)
    process = start("train", "arithmetic", "--out", str(parts), *flags)
    log = parts / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert err.count("\n") == 1
    step = int(re.search(r"after step (\d+), saved", err).group(1))
    assert 0 < step < 400
    assert (parts / f"checkpoints/step-{step:08d}/manifest.json").exists()
    call("train", "arithmetic", "--out", str(parts), *flags)
    for name in ("metrics.jsonl", "checkpoints/step-00000400/model.safetensors"):
        assert (parts / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["trian"], "unknown command 'trian'; did you mean train?"),
        (["train"], "expected PRESET first, e.g. nps train arithmetic"),
        (["train", "arithmetik", "--out", "x"], "did you mean arithmetic?"),
        (["train", "zzz", "--out", "x"], "there are: arithmetic"),
        (["train", "arithmetic"], "--out"),
        (["train", "arithmetic", "--out", "x", "--rulez", "3"], "did you mean --rules?"),
        (
            ["train", "arithmetic", "--out", "x", "--rules", "0"],
            "rules: got 0, expected at least 1",
        ),
        (["train", "arithmetic", "--out", "x", "--rules", "two"], "--rules"),
        (["train", "arithmetic", "--out", "x", "--dropout", "1.5"], "dropout: got 1.5"),
        (["train", "arithmetic", "--out", "x", "--epochs", "-1"], "epochs: got -1"),
        (["train", "arithmetic", "--out", "x", "--query", "conv"], "query"),
        (["train", "arithmetic", "--out", "x", "--batch-size", "20000"], "batch_size: got 20000"),
        (["train", "arithmetic", "--out", "x", "--temperature", "nan"], "temperature: got nan"),
        (["run", "arithmetik"], "unknown experiment 'arithmetik'; did you mean arithmetic?"),
        (["run", "arithmetic", "--seeds", "0"], "--seeds: got 0"),
        (["run", "arithmetic", "--presets", "arithmetic-sharb"], "did you mean arithmetic-sharp?"),
        (["eval", "nowhere"], "nowhere: no such run folder"),
        (["eval", "."], "not a run folder, it has no config.json"),
        (["table", "."], "no tested runs"),
        (["presets", "x"], "expected no arguments"),
        (["data"], "expected WORLD first, e.g. nps data mnist"),
        (
            ["data", "atari", "--game", "pang"],
            "expected one of all, pong, space_invaders, freeway, breakout, qbert",
        ),
        (["data", "mnits"], "unknown world 'mnits'; did you mean mnist?"),
        (["data", "mnist", "--data", "nowhere"], "--data: no such folder"),
        (["train", "arithmetic", "--out", "x", "--data", "nowhere"], "--data: no such folder"),
        (["run", "arithmetic", "--data", "nowhere"], "--data: no such folder"),
        (["eval", "x", "--data", "nowhere"], "--data: no such folder"),
        (["sweep", "arithmetic", "--data", "nowhere"], "--data: no such folder"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    _, err = call(*args, code=2)
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_the_help_names_every_kind_of_data():
    from nps.commands.data import WORLDS

    shown, _ = call("--help")
    section = shown.partition("nps data")[2].partition("\n\n")[0]
    assert set(WORLDS) <= set(re.findall(r"\w+", section))


EMPTY_PATHS = [
    ("data mnist --to", "--to"),
    ("data mnist --data", "--data"),
    ("data atari --game=pong --to", "--to"),
    ("data stacks --to", "--to"),
    ("data record CartPole-v1 --out", "--out"),
    ("bench --quick --out", "--out"),
    ("bench --table", "--table"),
    ("train world-model --out=x --data", "--data"),
    ("train arithmetic --out", "--out"),
    ("train mnist-fifth --out=x --start-from", "start_from"),
    ("eval x --data", "--data"),
    ("eval x --on", "--on"),
    ("table x --into a.md", "--into"),
    ("table --to=x --add a", "--add"),
    ("eval", "RUN"),
    ("inspect", "RUN"),
    ("table", "RESULTS"),
]


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize(("command", "named"), EMPTY_PATHS)
def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch, command, named, empty):
    monkeypatch.chdir(tmp_path)
    _, err = call(*command.split(), empty, code=2)
    assert f"{named}: got an empty path, expected a folder" in err or f"an empty {named}" in err
    assert err.count("\n") == 1
    if named.startswith("--") and named not in ("--into", "--add"):
        _, again = call(*command.split()[:-1], f"{named}={empty}", code=2)
        assert again == err
    assert not list(tmp_path.iterdir())


def test_an_empty_path_in_python_is_refused_too():
    with pytest.raises(UserError, match="path: got an empty path, expected a run folder"):
        nps.load("")
    with pytest.raises(UserError, match="data: got an empty path"):
        nps.train("world-model", out="x", data="")


TINY_BLOCKS = [
    "--train-episodes=2",
    "--train-steps=30",
    "--validation-episodes=2",
    "--test-episodes=2",
    "--hidden-dim=8",
    "--epochs=1",
]


@pytest.mark.parametrize("seeds", ["--seeds=1", "--seeds=2"])
def test_a_refused_training_leaves_its_folder_free(tmp_path, seeds):
    train = ["train", "blocks-nps", "--out", str(tmp_path / "run"), seeds, *TINY_BLOCKS]
    _, err = call(*train, "--batch-size=61", code=2)
    said = "batch_size: got 61, expected at most the 60 training examples; --batch-size 60 fits"
    assert err == f"nps: error: {said}\n"
    _, err = call(*train, "--batch-size=60", "--hidden-dim=10000000", code=1)
    assert err.startswith("nps: error: nps train blocks-nps: not enough memory: 10000000 x 1")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    call(*train, "--batch-size=60")


def test_a_stack_with_a_seed_of_another_config_claims_none(tmp_path):
    train = ["train", "arithmetic", "--out", str(tmp_path), "--epochs=1", *SMALL]
    call(*train[:3], str(tmp_path / "seed-1"), "--seed=1", *train[4:])
    _, err = call(*train, "--rules=6", "--seeds=2", code=2)
    assert "seed-1: holds a run with another config (rules: 4 -> 6)" in err
    assert not (tmp_path / "seed-0").exists()
    call(*train, "--seeds=2")


@pytest.mark.skipif(torch.cuda.is_available(), reason="says that there is no CUDA device")
def test_missing_cuda_is_reported(tmp_path):
    out = str(tmp_path / "x")
    _, err = call("train", "arithmetic", "--out", out, "--device", "cuda", code=2)
    assert "torch sees no CUDA device" in err
    assert not Path(out).exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: (run / "config.json").write_text('{"schema": 1'), "damaged, not JSON"),
        (lambda run: set_config(run, schema=9), "schema 9, this nps reads up to 1"),
        (lambda run: set_config(run, experiment="mnist2"), "unknown experiment 'mnist2'"),
        (lambda run: set_config(run, config={"rulez": 3}), "unknown field 'rulez'"),
        (lambda run: [p.unlink() for p in run.glob("checkpoints/*/model*")], "no whole checkpoint"),
    ],
)
def test_broken_run_folders(tmp_path, spoil, message):
    run = tmp_path / "run"
    call("train", "arithmetic", "--out", str(run), "--epochs=1", *SMALL)
    spoil(run)
    _, err = call("eval", str(run), code=2)
    assert message in err
    assert err.count("\n") == 1
    assert not (run / "test.json").exists()


def set_config(run: Path, **changes: object) -> None:
    saved = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**saved, **changes}))


def test_the_place_of_data_is_inherited_and_no_part_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("NPS_DATA", "elsewhere")  # so that it is put back afterwards
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    call("train", "arithmetic", "--out=run", "--epochs=1", "--data=files", *SMALL)
    assert os.environ["NPS_DATA"] == str(tmp_path / "files")
    assert "files" not in (tmp_path / "run/config.json").read_text()
    assert "complete" in call("train", "arithmetic", "--out=run", "--epochs=1", *SMALL)[1]


def test_help_everywhere():
    for args in (
        ["--help"],
        [],
        ["run", "--help"],
        ["train", "--help"],
        ["eval", "--help"],
        ["data", "--help"],
    ):
        assert "nps " in call(*args)[0]
    out, _ = call("train", "arithmetic-sharp", "--help")
    assert "--learning-rate" in out
    assert "nps train arithmetic --out runs/six --rules 6" in out
    for command in ("train", "inspect"):
        shown = call(command, "--help")[0]
        assert f"nps {command} " in shown
        assert "runs/blocks" in shown
        assert "runs/pong" in shown
    assert call("--version")[0] == nps.__version__ + "\n"
    assert "arithmetic-sharp" in call("presets")[0]


def test_run_trains_tests_reports_and_goes_on(tmp_path, monkeypatch):
    """`nps run` with a tiny experiment in place of the real one; children are real processes."""
    from nps.experiments import EXPERIMENTS

    small = {"epochs": 1, "train_examples": 640, "test_examples": 60, "validate_every": 1}
    quick = dict.fromkeys(("arithmetic", "arithmetic-baseline", "arithmetic-sharp"), small)
    monkeypatch.setattr(EXPERIMENTS["arithmetic"], "quick", quick)
    out = tmp_path / "out"
    args = ["run", "arithmetic", "--quick", "--seeds=2", "--workers=2", "--out", str(out)]
    printed, _ = call(*args)
    assert "Routing MLP" in printed
    assert "rule 0:" in printed
    assert "nps run arithmetic --seeds 10" in printed
    page = (out / "report.html").read_text()
    assert "Coordinate arithmetic" in page
    assert page.count("data:image/png") == 1
    assert "<p>This is the quick version: epochs 1 instead of " in page
    assert "nps train arithmetic --epochs=1 " in page
    assert f"Report with figures: {out / 'report.html'}" in printed
    before = (out / "arithmetic/seed-1/provenance.json").read_bytes()
    call(*args)
    assert (out / "arithmetic/seed-1/provenance.json").read_bytes() == before
    assert (out / "arithmetic/seed-0").is_dir()
    assert "| Routing MLP" in call("table", str(out))[0]
