"""Several runs at once: those that die restart, failures are reported, a stop reaches all."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nps.errors import RunFailed, UserError
from nps.jobs.processes import End, Job, run_jobs, train_all
from nps.training.run import Run
from tests.test_cli import wait_for

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
    wait_for(logs)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert "the same command resumes from there" in err
    for log in logs:
        assert list(log.parent.glob("checkpoints/step-*/manifest.json"))
        with Run(log.parent).writing():  # nobody holds it any more
            pass


class Fake:
    """A training that ends at once, as the script says for its folder."""

    script: dict[str, list[End]]

    def __init__(self, job: Job) -> None:
        self._end = self.script[job.folder.name].pop(0)

    def poll(self) -> End:
        return self._end

    def stop(self) -> None: ...


def test_the_dead_go_on_and_the_failed_do_not(monkeypatch):
    monkeypatch.setattr("nps.jobs.processes.POLL_SECONDS", 0.001)
    killed, good = End(-9, "killed"), End(0, "")
    Fake.script = {
        "dies": [killed, End(143, "terminated"), good],
        "dies-too-often": [killed, killed, killed, good],
        "fails": [End(1, "not finite"), good],
        "is-wrong": [End(2, "rules: got 0"), good],
        "is-good": [good],
    }
    jobs = [Job(Path(name), (), 1) for name in Fake.script]
    messages: list[str] = []
    failed = train_all(jobs, 2, Fake, 2, messages.append)
    assert {job.folder.name: why for job, why in failed.items()} == {
        "dies-too-often": "killed",
        "fails": "not finite",
        "is-wrong": "rules: got 0",
    }
    assert sorted(messages) == [
        "dies-too-often: killed; restarting from its last checkpoint",
        "dies-too-often: killed; restarting from its last checkpoint",
        "dies: killed; restarting from its last checkpoint",
        "dies: terminated; restarting from its last checkpoint",
    ]
    assert [len(rest) for rest in Fake.script.values()] == [0, 1, 1, 1, 0]


def test_a_training_ends_with_whoever_started_it(tmp_path):
    """Even by SIGKILL: the folder is free at once for the next."""
    script = f"""
import time
from pathlib import Path
from nps.jobs.processes import Job, Process
process = Process(Job(Path({str(tmp_path / "run")!r}), ("arithmetic", *{SMALL!r}), 300))
time.sleep(90)
"""
    parent = subprocess.Popen([sys.executable, "-c", script])
    run, deadline = Run(tmp_path / "run"), time.monotonic() + 90
    while not run.metrics():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while True:
        try:
            with run.writing():
                break
        except UserError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert run.metrics()[-1]["epoch"] < 300
