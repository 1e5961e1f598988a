"""SIGTERM and Ctrl-C: finish the step, save, exit 143 or 130. A second one exits at once.

In a program that called `nps.train`, a second Ctrl-C is a `KeyboardInterrupt`: it must not end a
notebook's kernel.
"""

from __future__ import annotations

import os
import signal
import time
from types import FrameType
from typing import Any

SAME_REQUEST = 1.0
"""Seconds within which further signals count as the same request: `timeout` and batch systems send
one to the process and one to its group."""


class Interrupted(Exception):
    """The run was asked to stop and has saved its state."""

    def __init__(self, signum: int, where: str) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} {where}, saved")
        self.signum = signum
        self.exit_code = 128 + signum


class Signals:
    """While open, remembers the first signal instead of letting it end the process.

    Args:
        raises: whether a second Ctrl-C raises `KeyboardInterrupt` instead of ending the process.
    """

    def __init__(self, *, raises: bool = False) -> None:
        self._raises = raises
        self.received: int | None = None
        self._at = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for signum in (signal.SIGTERM, signal.SIGINT):
            try:
                self._before[signum] = signal.signal(signum, self._note)
            except ValueError:  # not the main thread: the owner of the process handles signals
                break
        return self

    def __exit__(self, *error: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._at = signum, time.monotonic()
        elif time.monotonic() - self._at >= SAME_REQUEST:
            if self._raises and signum == signal.SIGINT:
                raise KeyboardInterrupt
            os._exit(128 + signum)
