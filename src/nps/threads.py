"""Run work in background threads, or in the calling thread if the system allows no more.

Batch systems limit the threads of a user. Reading ahead and saving in parallel only save time, so
training goes on without them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from nps.errors import NO_THREAD

T = TypeVar("T")
P = ParamSpec("P")


class Background:
    """One worker thread, started on first use."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = ThreadPoolExecutor(1)

    def submit(self, function: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> Future[T]:
        """Start the work, or do it now if there is no thread; errors are raised by `result()`."""
        if self._pool is not None:
            try:
                return self._pool.submit(function, *args, **keywords)
            except RuntimeError as error:
                if NO_THREAD not in str(error):
                    raise
                self._pool = None
        done: Future[T] = Future()
        try:
            done.set_result(function(*args, **keywords))
        except Exception as error:
            done.set_exception(error)
        return done

    def close(self) -> None:
        """Finish the work under way and drop the rest."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def in_parallel(function: Callable[[T], object], items: Sequence[T], threads: int) -> None:
    """Call the function for every item, in this thread and up to `threads` - 1 more.

    All items are tried; the first error is raised afterwards.
    """
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    errors: list[BaseException] = []
    for item in items:
        waiting.put(item)

    def work() -> None:
        while True:
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                function(item)
            except BaseException as error:
                errors.append(error)

    helpers = [threading.Thread(target=work) for _ in range(min(threads, len(items)) - 1)]
    started = _start(helpers)
    work()
    for helper in started:
        helper.join()
    if errors:
        raise errors[0]


def _start(threads: Sequence[threading.Thread]) -> list[threading.Thread]:
    """Start as many as the system allows."""
    started: list[threading.Thread] = []
    for thread in threads:
        try:
            thread.start()
        except RuntimeError as error:
            if NO_THREAD not in str(error):
                raise
            break
        started.append(thread)
    return started
