"""`nps.train`: the command's training, called from a program or notebook that goes on after it."""

import dataclasses
import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

import nps
from nps.errors import RunFailed, UserError
from nps.experiments.arithmetic.task import ArithmeticTask
from nps.training.run import Run
from nps.training.session import TrainingSession
from nps.training.signals import Interrupted
from tests.test_cli import call
from tests.training.test_isolation import globals_of_torch, unusual  # noqa: F401
from tests.training.tools import files

TINY = {
    "epochs": 4,
    "train_examples": 640,
    "validation_examples": 50,
    "test_examples": 50,
    "validate_every": 1,
}
LONG = {**TINY, "epochs": 100_000}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]


IDENTITY = ("experiment", "preset", "seed", "precision", "config")


def is_free(folder):
    """Whether nobody holds the lock of the run; raises otherwise."""
    with Run(folder).writing():
        return True


def learned(folder):
    """All that was computed, byte for byte; not the id that tells two runs apart."""
    found = {name: data for name, data in files(folder).items() if "manifest" not in name}
    for name in found.keys() - {"metrics.jsonl"}:
        if name.endswith(".json"):
            found[name] = {**json.loads(found[name]), "run": None}
    return found


@pytest.fixture(scope="module")
def by_command(tmp_path_factory):
    """The run that the command trains."""
    out = tmp_path_factory.mktemp("command")
    call("train", "arithmetic", f"--out={out}", "--seed=2", *FLAGS)
    return out


# -- the same training as the command's -------------------------------------------------------


def test_equals_the_command_bit_for_bit(tmp_path, by_command):
    run = nps.train("arithmetic", out=tmp_path, seed=2, **TINY)
    assert learned(tmp_path) == learned(by_command)
    ours, theirs = (Run(folder).read() for folder in (tmp_path, by_command))
    assert {key: ours[key] for key in IDENTITY} == {key: theirs[key] for key in IDENTITY}
    assert isinstance(run, nps.LoadedRun)
    assert run.trace(n=5).rule.shape == (5, 1, 2)


def test_goes_on_with_a_run_of_the_command_and_the_command_with_its(
    tmp_path, by_command, monkeypatch, capsys
):
    """A third of the steps in each call, as if it had been stopped there."""
    stop_python_at(monkeypatch, 13)
    with pytest.raises(KeyboardInterrupt, match="step 13, saved; the same call resumes from there"):
        nps.train("arithmetic", out=tmp_path, seed=2, **TINY)
    stop_python_at(monkeypatch, None)
    _, err = call("train", "arithmetic", f"--out={tmp_path}", "--seed=2", *FLAGS)
    assert "resuming after step 13 of 40" in err
    ours = learned(tmp_path)
    assert {name: ours[name] for name in learned(by_command)} == learned(by_command)
    nps.train("arithmetic", out=tmp_path, seed=2, **TINY)
    assert "complete, 40 steps" in capsys.readouterr().err


def stop_python_at(monkeypatch, step, signum=signal.SIGINT):
    from nps.experiments import train as module
    from nps.training.config import Settings

    def stopping(**settings):
        return Settings(**{**settings, "stop_at": step})

    monkeypatch.setattr(module, "Settings", stopping)
    # `stop_at` stops as by SIGTERM
    monkeypatch.setattr("nps.training.session.signal", SimpleNamespace(SIGTERM=signum))


def test_several_seeds_and_a_config(tmp_path):
    config = dataclasses.replace(nps.presets()["arithmetic"].config, **{**TINY, "rules": 5})
    first = nps.train(config, out=tmp_path, seed=3, seeds=2, learning_rate=1e-3, progress=False)
    assert (first.seed, first.preset) == (3, "arithmetic-5-rules")  # the nearest one
    assert first.config == dataclasses.replace(config, learning_rate=1e-3)
    other = nps.load(tmp_path, seed=4)
    assert len(other.model.layer.rules) == 5
    assert [run.name for run in sorted(tmp_path.iterdir())] == ["seed-3", "seed-4"]
    said = json.loads((tmp_path / "seed-3/provenance.json").read_text())[0]["command"]
    assert "nps.train('arithmetic-5-rules', epochs=4, " in said
    assert "learning_rate=0.001" in said
    assert "seed=3, seeds=2" in said
    assert str(tmp_path) not in said


# -- what is left behind ----------------------------------------------------------------------


def test_the_program_goes_on_as_before(tmp_path, by_command, unusual, monkeypatch):  # noqa: F811
    """Whatever it has set, the run is the same, and its settings are afterwards as before."""
    monkeypatch.setenv("NPS_DATA", "mine")
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    before, threads = globals_of_torch(), threading.enumerate()
    with torch.no_grad():
        nps.train("arithmetic", out=tmp_path / "run", seed=2, data=tmp_path, **TINY)
        nps.train("arithmetic", out=tmp_path / "again", seed=2, **TINY)
        assert not torch.is_grad_enabled()
    assert globals_of_torch() == before
    assert threading.enumerate() == threads
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert os.environ["NPS_DATA"] == "mine"
    assert is_free(tmp_path / "run")
    assert sessions_in_memory() == 0
    assert learned(tmp_path / "run") == learned(tmp_path / "again") == learned(by_command)


def test_ctrl_c_saves_and_raises_and_the_same_call_resumes(tmp_path, capsys):
    handler, random = signal.getsignal(signal.SIGINT), torch.get_rng_state()
    stopper = threading.Thread(target=interrupt_when_it_trains, args=(tmp_path,))
    stopper.start()
    with pytest.raises(KeyboardInterrupt, match=r"after step \d+, saved") as stopped:
        nps.train("arithmetic", out=tmp_path, **LONG)
    stopper.join()
    assert sessions_in_memory() == 0  # nor their models, while the notebook keeps the exception
    step = int(re.search(r"step (\d+)", str(stopped.value)).group(1))
    assert nps.load(tmp_path, which="last").step == step
    assert signal.getsignal(signal.SIGINT) is handler
    assert torch.equal(torch.get_rng_state(), random)
    assert is_free(tmp_path)
    stopper = threading.Thread(target=interrupt_when_it_trains, args=(tmp_path,))
    stopper.start()
    with pytest.raises(KeyboardInterrupt):
        nps.train("arithmetic", out=tmp_path, **LONG)
    stopper.join()
    assert f"resuming after step {step} of 1000000" in capsys.readouterr().err


def sessions_in_memory():
    gc.collect()
    return sum(type(thing) is TrainingSession for thing in gc.get_objects())


def interrupt_when_it_trains(folder):
    """Ctrl-C, once the metric log grows."""
    log, deadline = folder / "metrics.jsonl", time.monotonic() + 60
    length = log.stat().st_size if log.exists() else 0
    while not (log.exists() and log.stat().st_size > length):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def test_a_failure_leaves_no_lock_and_no_handler(tmp_path, monkeypatch):
    handler = signal.getsignal(signal.SIGINT)
    before = globals_of_torch()

    def broken(self, model, batch):
        loss = model.layer.rules.embedding.sum() * float("nan")
        return loss, {}

    with monkeypatch.context() as patch:
        patch.setattr(ArithmeticTask, "loss", broken)
        with pytest.raises(RunFailed, match="step 1: the loss is nan"):
            nps.train("arithmetic", out=tmp_path, **TINY)
    assert globals_of_torch() == before
    assert signal.getsignal(signal.SIGINT) is handler
    assert is_free(tmp_path)
    assert nps.train("arithmetic", out=tmp_path, progress=False, **TINY).step == 40


def test_in_a_thread(tmp_path, by_command):
    """Where signals cannot be handled."""
    found = []

    def work():
        found.append(nps.train("arithmetic", out=tmp_path, seed=2, **TINY))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0].trace(n=1).rule.shape == (1, 1, 2)
    assert learned(tmp_path) == learned(by_command)


def test_sigterm_saves_and_goes_to_the_handler_of_the_program(tmp_path, monkeypatch, capsys):
    stop_python_at(monkeypatch, 5, signal.SIGTERM)
    received = []
    before = signal.signal(signal.SIGTERM, lambda signum, frame: received.append(signum))
    try:
        with pytest.raises(Interrupted, match="SIGTERM after step 5, saved"):
            nps.train("arithmetic", out=tmp_path, **TINY)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]
    assert "saved; the same call resumes from there" in capsys.readouterr().err
    assert is_free(tmp_path)


@pytest.mark.gpu
def test_on_cuda_the_generator_is_restored_too(tmp_path):
    torch.cuda.manual_seed(5)
    before, tf32 = torch.cuda.get_rng_state(), torch.backends.cudnn.allow_tf32
    run = nps.train("arithmetic", out=tmp_path, device="cuda", progress=False, **TINY)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert torch.backends.cudnn.allow_tf32 == tf32
    assert next(run.model.parameters()).is_cuda
    assert run.trace(n=3).rule.is_cuda
    assert nps.load(tmp_path, "cuda").trace([[[0.1, 0.2], [0.3, 0.4]]], [[[0.4, 0.2], [0.3, 0.4]]])


NOTEBOOK = """
import asyncio, os, pathlib, signal, threading, time
import nps

TINY = {tiny}

def interrupt_when_it_trains():
    log = pathlib.Path("long/metrics.jsonl")
    while not (log.exists() and log.stat().st_size):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

async def cell():
    run = nps.train("arithmetic", out="run", **TINY)
    print(repr(run))
    threading.Thread(target=interrupt_when_it_trains).start()
    try:
        nps.train("arithmetic", out="long", **{{**TINY, "epochs": 10**6}})
    except KeyboardInterrupt:
        print("interrupted")
    await asyncio.sleep(0)
    print("goes on")

loop = asyncio.new_event_loop()
loop.run_until_complete(cell())
"""


def test_in_a_running_event_loop_without_a_terminal(tmp_path):
    """As in a notebook's kernel: progress is lines, and Ctrl-C ends the cell, not the loop."""
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK.format(tiny=TINY)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    steps = [line for line in lines if line.startswith("run: step")]
    assert re.match(r"run: step 40 of 40, loss 0\.\d+ \(", steps[-1])
    assert 1 < len(steps) < 12
    assert any(line.startswith("<run of arithmetic") for line in lines)
    assert lines[-2:] == ["interrupted", "goes on"]
    assert "\x1b" not in done.stdout + done.stderr
    assert is_free(tmp_path / "long")


def test_progress_can_be_left_out(tmp_path, capsys):
    nps.train("arithmetic", out=tmp_path, progress=False, **TINY)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


# -- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "how", "message"),
    [
        ("arithmetics", {}, "unknown preset 'arithmetics'; did you mean arithmetic?"),
        ("blocks", {}, "blocks is an experiment, expected one of its presets: shapes-gnn, "),
        ("arithmetic", {"rule": 5}, "nps.train: unknown argument 'rule'; did you mean rules?"),
        ("arithmetic", {"progres": 0}, "unknown argument 'progres'; did you mean progress?"),
        ("arithmetic", {"rules": "5"}, "config: rules is '5', expected int"),
        ("arithmetic", {"rules": 0}, "config: rules: got 0, expected at least 1"),
        ("arithmetic", {"seeds": 0}, "seeds: got 0, expected at least 1"),
        ("arithmetic", {"seeds": 10**8}, "seeds: got 100000000, expected at most 10000"),
        ("mnist-fifth", {"start_from": "nowhere"}, "nowhere/seed-0: no such run folder"),
        ("arithmetic", {"save_every": -1}, "save_every: got -1, expected 0 or more"),
        ("arithmetic", {"device": "gpu"}, "device: got 'gpu', expected cpu or cuda"),
        ("arithmetic", {"precision": "fp8"}, "precision: got 'fp8', expected one of float32, "),
        ("arithmetic", {"data": "nowhere"}, "data: no such folder or file: "),
        ("world-model", {}, "episodes: got none, expected data= with their file or folder"),
        ("mnist-fifth", {}, "mnist-fifth: expected start_from=, a folder of mnist-balanced runs"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(tmp_path, preset, how, message):
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        nps.train(preset, out=tmp_path / "run", **how)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_config_that_is_nobodys_is_refused(tmp_path):
    with pytest.raises(UserError, match="config: got TrainConfig, expected that of an experiment"):
        nps.train(nps.training.config.TrainConfig(), out=tmp_path / "run")


def test_errors_name_arguments_not_flags(tmp_path):
    with pytest.raises(UserError, match="out: got an empty path, expected a folder"):
        nps.train("arithmetic", out="")
    nps.train("arithmetic", out=tmp_path, progress=False, **TINY)
    with pytest.raises(UserError, match=r"choose another out=, or fresh=True to start over"):
        nps.train("arithmetic", out=tmp_path, **{**TINY, "rules": 5})
    run = nps.train("arithmetic", out=tmp_path, fresh=True, progress=False, **{**TINY, "rules": 5})
    assert run.config.rules == 5


def test_presets_are_listed_with_what_they_are():
    presets = nps.presets()
    assert {"arithmetic", "mnist", "blocks-best", "atari-nps", "world-model"} <= presets.keys()
    first = repr(presets).splitlines()[0]
    assert re.fullmatch(r"arithmetic +The paper's settings: 4 rules\.", first)
    with pytest.raises(UserError, match=r"unknown preset 'mnits'; did you mean mnist\?"):
        _ = presets["mnits"]
