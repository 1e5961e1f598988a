"""Several runs at once: one that fails is told, and a stop reaches every one of them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nps.errors import RunFailed
from nps.jobs import Job, run_jobs
from nps.training.run import Run

SMALL = ("--train-examples=640", "--validation-examples=50", "--validate-every=1")


def job(folder: Path, *flags: str) -> Job:
    return Job(folder, ("arithmetic", "--epochs=1", *SMALL, *flags), 1)


def test_a_failing_run_is_named_and_the_others_finish(tmp_path):
    jobs = [job(tmp_path / "bad", "--rules=0"), job(tmp_path / "good")]
    with pytest.raises(RunFailed, match=r"1 of 2 runs failed; the first: .*bad: .*rules: got 0"):
        run_jobs(jobs, workers=2)
    assert Run(tmp_path / "good").metrics()[-1]["epoch"] == 1


def test_a_stop_saves_every_run(tmp_path):
    command = [sys.executable, "-m", "nps", "run", "arithmetic", "--quick", "--workers=2"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    logs = [
        tmp_path / name / "seed-0/metrics.jsonl" for name in ("arithmetic", "arithmetic-baseline")
    ]
    deadline = time.monotonic() + 90
    while not all(log.exists() and log.stat().st_size for log in logs):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert "the same command goes on from there" in err
    for log in logs:
        assert list(log.parent.glob("checkpoints/step-*/manifest.json"))
        with Run(log.parent).writing():  # nobody holds it any more
            pass
