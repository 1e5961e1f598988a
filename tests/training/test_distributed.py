"""Two real processes under torchrun train what one would, stop together, and can change in number.

The preset has a loss of the whole batch (the bonus on even use), which a mean of shares is not.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nps.training import checkpoint
from nps.training.run import Run

TRAIN = ["train", "arithmetic-sharp", "--train-examples=640", "--batch-size=64"]
TRAIN += ["--validation-examples=50", "--validate-every=1"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def start(folder: Path, epochs: int, *, processes: int) -> subprocess.Popen[str]:
    launcher = TORCHRUN if processes == 2 else []
    flags = [f"--epochs={epochs}", "--out", str(folder)]
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "nps", *TRAIN, *flags],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def workers(torchrun: int) -> list[int]:
    children = Path(f"/proc/{torchrun}/task/{torchrun}/children").read_text().split()
    return [int(pid) for pid in children]


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in Run(folder).metrics()]


def test_two_processes_equal_one_stop_together_and_resume_as_one(tmp_path):
    epochs = 40
    alone, together = tmp_path / "alone", tmp_path / "together"
    pair, single = start(together, epochs, processes=2), start(alone, epochs, processes=1)
    deadline = time.monotonic() + 90
    while not (together / "metrics.jsonl").exists() or len(Run(together).metrics()) < 2:
        assert time.monotonic() < deadline
        assert pair.poll() is None, pair.communicate()
        time.sleep(0.02)
    os.kill(workers(pair.pid)[1], signal.SIGTERM)  # a signal to one of the two stops both
    _, error = pair.communicate(timeout=60)
    assert pair.returncode != 0
    assert error.count("stopped by SIGTERM after step") == 2
    stopped_at = checkpoint.steps(together / "checkpoints")[-1]
    assert 20 <= stopped_at < epochs * 10
    seen_by_two = losses(together)

    _, error = start(together, epochs, processes=1).communicate(timeout=90)
    assert f"resuming after step {stopped_at}" in error
    assert single.wait(timeout=90) == 0
    assert len(seen_by_two) >= 2
    assert seen_by_two == pytest.approx(losses(alone)[: len(seen_by_two)], rel=1e-4)
    assert losses(together) == pytest.approx(losses(alone), rel=5e-2)
    sittings = Run(together).provenance()
    assert [sitting["processes"] for sitting in sittings] == [2, 1]


def test_a_batch_that_cannot_be_shared_is_refused(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, *TORCHRUN, "-m", "nps", *TRAIN, "--batch-size=63", "--out"]
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=90)
    assert done.returncode != 0
    assert "batch_size: got 63, expected a multiple of the 2 processes" in done.stderr
    assert not folder.exists()
