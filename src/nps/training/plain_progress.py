"""Progress as plain lines, for scripts and notebooks that call `nps.train` without a terminal."""

from __future__ import annotations

import time

from rich.console import Console


def in_terminal() -> bool:
    """Whether a live line can be shown; never in a notebook."""
    return Console(stderr=True).is_terminal


SHARE = 0.1
"""Share of the work between two lines."""
FIRST_WAIT, LONGEST_WAIT = 5.0, 60.0
"""Seconds after which a line is printed in any case; the wait doubles each time."""


class PlainProgress:
    """Prints a line now and then: about ten of them in all; of a long training, one a minute."""

    def __init__(self, title: str, total: int, done: int) -> None:
        self._title, self._total, self._first, self._shown = title, total, done, done
        self._began = self._shown_at = time.monotonic()
        self._wait = FIRST_WAIT
        self._metrics: dict[str, float] = {}

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, done: int, metrics: dict[str, float] | None = None) -> None:
        """As `ProgressLine.update`; metrics are shown until newer ones come."""
        now, new = time.monotonic(), metrics is not None
        self._metrics = self._metrics if metrics is None else metrics
        far = done - self._shown >= SHARE * self._total or done == self._total
        late = now - self._shown_at >= self._wait
        if not (far and new) and not late:
            return
        if late:
            self._wait = min(2 * self._wait, LONGEST_WAIT)
        self._shown, self._shown_at = done, now
        numbers = "".join(f", {key} {value:.4g}" for key, value in self._metrics.items())
        took = now - self._began
        left = took * (self._total - done) / max(1, done - self._first)
        ends = f"about {_spell(left)} left" if done < self._total else _spell(took)
        print(f"{self._title}: step {done} of {self._total}{numbers} ({ends})", flush=True)


def _spell(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
