"""Many runs at once: each training is its own process, at most `workers` at a time.

A separate process a run keeps runs independent: one that dies takes no other along, and each can
be repeated alone by its own command.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nps.errors import RunFailed
from nps.training.progress import ProgressLine
from nps.training.signals import Interrupted, Signals


@dataclass(frozen=True)
class Job:
    """One `nps train` command."""

    folder: Path
    arguments: tuple[str, ...]
    epochs: int


def run_jobs(jobs: Sequence[Job], workers: int) -> None:
    """Train all; raises after the others are done if one failed, or when interrupted."""
    waiting, failed = list(jobs), list[str]()
    running: dict[Job, subprocess.Popen[str]] = {}
    done, total = 0, sum(job.epochs for job in jobs)
    with Signals() as signals, ProgressLine("training", total, 0, "epochs") as line:
        while waiting or running:
            if signals.received is not None:
                _stop(running)
                raise Interrupted(signals.received, f"with {len(waiting)} runs not begun")
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                running[job] = _start(job)
            time.sleep(0.2)
            for job, process in list(running.items()):
                if process.poll() is not None:
                    del running[job]
                    done += job.epochs
                    if process.returncode != 0:
                        failed.append(_last_line(job, process))
            line.update(done + sum(_epoch(job) for job in running))
    if failed:
        raise RunFailed(f"{len(failed)} of {len(jobs)} runs failed; the first: {failed[0]}")


def _start(job: Job) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # the workers share the cores already
    command = [sys.executable, "-m", "nps", "train", *job.arguments, "--out", str(job.folder)]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Signals reach the children once, through us, not also from the terminal.
        start_new_session=True,
    )


def _stop(running: dict[Job, subprocess.Popen[str]]) -> None:
    for process in running.values():
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    for process in running.values():
        process.wait()


def _last_line(job: Job, process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    lines = process.stderr.read().strip().splitlines()
    return f"{job.folder}: {lines[-1] if lines else f'exit code {process.returncode}'}"


def _epoch(job: Job) -> int:
    """The last epoch in a run's metric log, read from the end of the file."""
    try:
        with (job.folder / "metrics.jsonl").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 20_000))
            whole_lines = log.read().split(b"\n")[:-1]
        return int(json.loads(whole_lines[-1])["epoch"])
    except (OSError, ValueError, IndexError):
        return 0
