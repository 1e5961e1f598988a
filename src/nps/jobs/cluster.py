"""Trainings as Ray tasks: each takes one CPU (and one GPU for cuda) and runs `nps train` there.

The processes are those of `nps.jobs`, only started by a Ray worker on whichever node has room. The
run folders must be on storage that all nodes see under the same path, so that a restarted task
finds its checkpoint on any node. `jobs.train_all`, not Ray, decides which tasks to restart, so that
a lost worker or node is counted and reported like any other death.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nps.errors import UserError, extra
from nps.jobs.processes import POLL_SECONDS, End, Job, Process, Training

DATA_VARIABLES = {"NPS_DATA", "NPS_CACHE"}
"""Environment variables that say where the data are."""


@contextmanager
def ray_cluster(device: str) -> Iterator[Callable[[Job], Training]]:
    """A function that starts jobs: on RAY_ADDRESS, else a local cluster, else a new one."""
    try:
        import ray
    except ImportError:
        raise UserError(f"--on ray needs the extra: {extra('cluster')}") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _require_reachable(os.environ.get("RAY_ADDRESS", ""))
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    try:
        ray.init(**quiet, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"--on ray: {' '.join(str(error).split())}") from None
    try:
        gpus = int(device == "cuda")
        if ray.cluster_resources().get("GPU", 0) < gpus:
            raise UserError("--on ray --device cuda: the cluster has no GPU")
        # No retries by Ray itself: see above.
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_train)
        yield lambda job: _Task(task, job)
    finally:
        ray.shutdown()


def _require_reachable(address: str) -> None:
    """Fail now; Ray itself would retry for minutes, with a warning every few seconds."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():  # no address, or a word such as local
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise UserError(f"--on ray: cannot reach RAY_ADDRESS={address} ({error})") from None


def _train(job: Job, variables: dict[str, str]) -> End:
    """Run in a Ray worker. A cancelled task gets a KeyboardInterrupt: it saves and ends."""
    os.environ.update(variables)  # a cluster started by others has their environment
    # Restored, since a cluster started in the background of a script ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = Process(job)
    try:
        while (end := process.poll()) is None:
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        process.stop()
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
        raise
    return end


class _Task:
    """A training on the cluster."""

    def __init__(self, task: Any, job: Job) -> None:
        # A worker has a different working folder.
        job = dataclasses.replace(job, folder=job.folder.resolve())
        self._result = task.remote(
            job, {name: os.environ[name] for name in DATA_VARIABLES & set(os.environ)}
        )

    def poll(self) -> End | None:
        import ray
        from ray.exceptions import RayError, RayTaskError

        if not ray.wait([self._result], timeout=0)[0]:
            return None
        try:
            end: End = ray.get(self._result)
            return end
        except RayTaskError as error:
            return End(1, str(error).strip().splitlines()[-1])
        except RayError as error:
            return End(-9, f"its Ray worker died ({type(error).__name__})")

    def stop(self) -> None:
        import ray

        ray.cancel(self._result)
