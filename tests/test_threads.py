"""The same work with threads and without: a system may start no more of them."""

import subprocess
import sys
import threading

import pytest
import torch

from nps.threads import Background, in_parallel
from nps.training.data import Stream
from nps.training.progress import ProgressLine
from tests.training.tools import TinyTask, files, go


@pytest.fixture
def no_threads(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.fixture(params=["threads", "one thread", "none"])
def any_threads(request, monkeypatch):
    """As many as wanted, one and then no more, or none."""
    allowed = {"threads": 10**6, "one thread": 1, "none": 0}[request.param]
    start = threading.Thread.start

    def count(self):
        nonlocal allowed
        if allowed == 0:
            raise RuntimeError("can't start new thread")
        allowed -= 1
        start(self)

    monkeypatch.setattr(threading.Thread, "start", count)


def test_every_item_is_done_once(any_threads):
    done = []
    in_parallel(done.append, range(50), 8)
    assert sorted(done) == list(range(50))
    in_parallel(done.append, [], 8)


def test_all_are_tried_and_the_first_error_is_raised(any_threads):
    done = []

    def half(item):
        if item % 2:
            raise ValueError(item)
        done.append(item)

    with pytest.raises(ValueError, match=r"\d"):
        in_parallel(half, range(10), 4)
    assert sorted(done) == [0, 2, 4, 6, 8]


def test_background_gives_results_and_errors(any_threads):
    worker = Background()
    found = [worker.submit(divmod, 7, n) for n in (2, 3, 0)]
    assert [each.result() for each in found[:2]] == [(3, 1), (2, 1)]
    with pytest.raises(ZeroDivisionError):
        found[2].result()
    worker.close()


def test_another_error_of_the_pool_is_not_swallowed():
    worker = Background()
    worker.close()
    with pytest.raises(RuntimeError, match="shutdown"):
        worker.submit(int)


def test_a_stack_trains_to_the_same_bytes(tmp_path, request):
    seeds = (0, 1, 2)
    go(tmp_path / "with", task=TinyTask(0.0), seeds=seeds)
    request.getfixturevalue("no_threads")
    go(tmp_path / "without", task=TinyTask(0.0), seeds=seeds)
    for seed in seeds:
        left, right = (files(tmp_path / name / f"seed-{seed}") for name in ("with", "without"))
        assert left == right


def test_a_stream_reads_in_line(no_threads):
    stream = Stream(
        lambda index: {"x": torch.tensor(index)},
        lambda step: torch.tensor([[step, step + 1]]),
        torch.device("cpu"),
    )
    for step in range(5):
        stream.fetch(step)
        assert stream.buffers["x"].tolist() == [[step, step + 1]]
    stream.close()


def test_progress_without_a_thread_stops_drawing(no_threads, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with ProgressLine("training", 10, 0) as line:
        line.update(5, {"loss": 1.0})
    drawn = capsys.readouterr().err
    assert "0/10" in drawn
    assert "5/10" not in drawn
    assert drawn.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # the cursor is back, the line is gone


def test_a_worker_that_cannot_watch_its_parent_ends():
    program = """if True:
        import runpy, threading
        def refuse(self):
            raise RuntimeError("can't start new thread")
        threading.Thread.start = refuse
        runpy.run_module("nps.worker", run_name="__main__")"""
    command = [sys.executable, "-c", program, "presets"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("nps: error: the system starts no more threads")
    assert done.stderr.count("\n") == 1
