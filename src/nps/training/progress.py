"""A progress line for terminals: rate, time left, a few metrics. Silent if there is no terminal.

Programs and notebooks get plain lines there instead (`plain_progress.py`).
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from nps.errors import NO_THREAD

WIDE, NARROW = 120, 60
"""Width of the terminal from which the bar is long, and below which there is none."""


class _Shortened(TextColumn):
    """Text that is cut where the terminal is too narrow, before any other column is."""

    def __init__(self, text: str) -> None:
        super().__init__(text, markup=False, table_column=Column(no_wrap=False))

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


def _columns(unit: str, width: int) -> list[ProgressColumn]:
    """Counts and the time left are always whole; the title and metrics get the rest."""
    bar: list[ProgressColumn] = [BarColumn(bar_width=24 if width >= WIDE else 8)]
    units: list[ProgressColumn] = [TextColumn(unit)]
    return [
        _Shortened("{task.description}"),
        *(bar if width >= NARROW else []),
        TaskProgressColumn(),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        *(units if width >= NARROW else []),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        _Shortened("{task.fields[metrics]}"),
    ]


class ProgressLine:
    """Counts up to `total` units; `update` may bring a few metrics to show."""

    def __init__(
        self, title: str, total: int, done: int, unit: str = "steps", *, silent: bool = False
    ) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            *_columns(unit, console.width),
            console=console,
            disable=silent or not console.is_terminal,
            transient=True,
        )
        self._unit = unit
        self._task = self._progress.add_task(
            title, total=total, completed=done, rate="", metrics=""
        )

    def __enter__(self) -> ProgressLine:
        try:
            self._progress.start()
        except RuntimeError as error:  # rich draws in a thread of its own
            if NO_THREAD not in str(error):
                raise
            self._progress.stop()
            self._progress.disable = True
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def update(self, done: int, metrics: dict[str, float] | None = None) -> None:
        if self._progress.disable:
            return
        speed = self._progress.tasks[0].speed
        fields: dict[str, Any] = {"rate": rate(speed, self._unit) if speed else ""}
        if metrics is not None:
            fields["metrics"] = "  ".join(f"{key} {value:.4g}" for key, value in metrics.items())
        self._progress.update(self._task, completed=done, **fields)


def rate(speed: float, unit: str) -> str:
    """Units per second to two significant digits; seconds per unit if slower than one a second."""
    if speed >= 1:
        return f"{speed:.2g}/s" if speed < 10 else f"{speed:.0f}/s"
    seconds, one = 1 / speed, unit.removesuffix("s")
    return f"{seconds:.2g} s/{one}" if seconds < 10 else f"{seconds:.0f} s/{one}"
