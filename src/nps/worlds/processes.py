"""Make the data of a world in several processes, each with one thread.

Does not import torch, so that processes start quickly.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import TypeVar

from nps.errors import RunFailed

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_processes(
    make: Callable[[Part], Result], parts: Sequence[Part], workers: int, doing: str
) -> Generator[Result]:
    """The results of all parts, in their order.

    Args:
        make: a function of a module, called with one part.
        parts: what to make.
        workers: processes; 0 makes everything in this process.
        doing: what a process did, for the message if one of them dies.
    """
    if workers == 0:
        yield from map(make, parts)
        return
    pool = ProcessPoolExecutor(min(workers, len(parts)), get_context("spawn"), exit_with_parent)
    try:
        with inherited_by_workers():
            results = pool.map(make, parts)
        yield from results
    except BrokenProcessPool:
        raise RunFailed(f"a process that {doing} died, perhaps out of memory") from None
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def inherited_by_workers() -> Iterator[None]:
    """Workers use one thread, which numpy reads on import, and ignore the terminal's Ctrl-C."""
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if threads is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = threads


def exit_with_parent() -> None:
    """Exit when the parent is killed; the worker would wait for work forever."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
