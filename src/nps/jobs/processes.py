"""Many runs in parallel: each training is a process of its own, at most `workers` at a time.

A process per run keeps runs independent: one that dies affects no other and restarts from its
checkpoint, and each can be repeated by its own command. Where the processes run is decided by a
function from a job to a `Training`: `Process` here, or a task on a cluster (`nps.jobs.cluster`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nps.errors import RunFailed, UserError
from nps.experiments.experiment import Experiment
from nps.reading import MAX_LOG_BYTES, open_regular, parse_json
from nps.training.config import TrainConfig, flag, to_json
from nps.training.progress import ProgressLine
from nps.training.run import Row
from nps.training.signals import Interrupted, Signals

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Job:
    """One `nps train` command: one run, or with `seeds` above 1 a stack of them."""

    folder: Path
    """Run folder, or with several seeds the folder of their runs."""
    arguments: tuple[str, ...]
    epochs: int
    seeds: int = 1

    @property
    def log(self) -> Path:
        """The metric log that shows its progress."""
        return (self.folder if self.seeds == 1 else self.folder / "seed-0") / "metrics.jsonl"

    @property
    def command(self) -> tuple[str, ...]:
        return ("train", *self.arguments, f"--seeds={self.seeds}", "--out", str(self.folder))


def job_of(
    experiment: Experiment,
    preset: str,
    config: TrainConfig,
    folder: Path,
    *,
    seed: int = 0,
    seeds: int = 1,
    device: str = "cpu",
    precision: str = "float32",
) -> Job:
    """The command that trains a preset with changed settings, one seed or a stack."""
    defaults, wanted = to_json(experiment.presets[preset].config), to_json(config)
    flags = [flag(name, value) for name, value in wanted.items() if value != defaults[name]]
    how = [] if precision == "float32" else [f"--precision={precision}"]
    arguments = (preset, *flags, f"--seed={seed}", f"--device={device}", *how)
    return Job(folder, arguments, config.epochs, seeds)


def default_workers(device: str) -> int:
    """One training per core, or per GPU."""
    import torch

    return max(1, torch.cuda.device_count()) if device == "cuda" else os.cpu_count() or 1


@dataclass(frozen=True)
class End:
    """How a training ended: its exit code, negative for a signal, and its last message."""

    code: int
    message: str

    @property
    def died(self) -> bool:
        """True if something else ended it: on its own, `nps train` exits with 0, 1 or 2."""
        return self.code not in (0, 1, 2)


class Training(Protocol):
    """A running job."""

    def poll(self) -> End | None:
        """How it ended, or None while it runs."""
        ...

    def stop(self) -> None:
        """Ask it to save and exit; `poll` shows when it has."""
        ...


class Process:
    """A training as a child process on this machine."""

    def __init__(self, job: Job) -> None:
        command = [sys.executable, "-m", "nps.worker", *job.command]
        # A file, since an unread pipe would fill up; it lives as long as this object.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # the workers already share the cores
            stdin=subprocess.PIPE,  # held open, never written: see nps.worker
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            # Signals reach the children once, through us, not also from the terminal.
            start_new_session=True,
        )

    def poll(self) -> End | None:
        code = self._process.poll()
        if code is None:
            return None
        if code < 0 or code > 128:  # 128 + the signal where it was caught
            signum = -code if code < 0 else code - 128
            return End(code, f"its process was killed by signal {signum}")
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        message = lines[-1].removeprefix("nps: error: ") if lines else f"exit code {code}"
        return End(code, message)

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)


def run_jobs(jobs: Sequence[Job], workers: int) -> None:
    """Train all jobs; if one fails, raise after the others are done."""
    failed = [f"{job.folder}: {why}" for job, why in train_all(jobs, workers).items()]
    if failed:
        raise RunFailed(f"{len(failed)} of {len(jobs)} runs failed; the first: {failed[0]}")


def train_all(
    jobs: Sequence[Job],
    workers: int,
    start: Callable[[Job], Training] = Process,
    retries: int = 0,
    report: Callable[[str], None] = print,
) -> dict[Job, str]:
    """Train all jobs; returns the reasons of those that failed. Raises only when interrupted.

    A training that dies is restarted from its checkpoint, up to `retries` times.
    """
    waiting, failed = list(jobs), dict[Job, str]()
    running: dict[Job, Training] = {}
    retries_left = dict.fromkeys(jobs, retries)
    done, total = 0, sum(job.epochs for job in jobs)
    with Signals() as signals, ProgressLine("training", total, 0, "epochs") as line:
        while waiting or running:
            if signals.received is not None:
                _stop(list(running.values()))
                raise Interrupted(signals.received, f"with {len(waiting)} runs not started")
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                running[job] = start(job)
            time.sleep(POLL_SECONDS)
            for job, end in [(job, training.poll()) for job, training in running.items()]:
                if end is None:
                    continue
                del running[job]
                if end.died and retries_left[job] > 0:
                    report(f"{job.folder}: {end.message}; restarting from its last checkpoint")
                    retries_left[job] -= 1
                    waiting.append(job)  # last: by then there may be memory again
                    continue
                done += job.epochs
                if end.code != 0:
                    failed[job] = end.message
            line.update(done + sum(_epoch(job) for job in running))
    return failed


def _stop(trainings: Sequence[Training]) -> None:
    for training in trainings:
        training.stop()
    while any(training.poll() is None for training in trainings):
        time.sleep(POLL_SECONDS / 4)


def _epoch(job: Job) -> int:
    """The last epoch in a run's metric log, read from the end of the file."""
    try:
        with open_regular(job.log, MAX_LOG_BYTES) as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 20_000))
            whole_lines = log.read().split(b"\n")[:-1]
        return int(parse_json(whole_lines[-1], str(job.log), Row, finite=False)["epoch"])
    except (OSError, UserError, IndexError):
        return 0
