"""Measure groups of cases, and record why a case was left out."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from nps.bench.cases import REFERENCE, SLOT_DIM, Case, Group, Mode, Work, smaller
from nps.bench.counts import Counts, count, peak_memory
from nps.bench.floor import Machine, floor_bytes, floor_seconds
from nps.bench.timing import Times, alternate, burst
from nps.bench.works import Task, make_task, ready
from nps.training.memory import free_bytes

PART = 8
"""A batch smaller by this factor is tried first."""
TRIES = 3


@dataclass(frozen=True)
class Row:
    """One case as measured; `skipped` says why there are no numbers."""

    section: str
    model: str
    work: Work
    mode: Mode
    batch: int
    slots: int
    rules: int
    skipped: str | None = None
    ms: float | None = None
    ms_least: float | None = None
    ms_most: float | None = None
    faster: float | None = None
    """How many times faster than GNN 512 in the same group."""
    parameters: int | None = None
    peak_bytes: int | None = None
    flops: int | None = None
    floor_bytes: int | None = None
    launches: int | None = None
    """In eager mode; compilation fuses them."""
    floor_ms: float | None = None
    launch_floor_ms: float | None = None
    distance: float | None = None
    """Time over floor."""

    @property
    def case(self) -> Case:
        return Case(self.model, self.work, self.mode, self.batch, self.slots, self.rules)


def measure(groups: Sequence[Group], device: torch.device, rounds: int) -> Iterator[list[Row]]:
    """The rows of one group after the other, without their floors."""
    bench = _Bench(device, rounds)
    for group in groups:
        yield bench.rows(group)


def with_floor(row: Row, machine: Machine) -> Row:
    """The row, with its distance to what the machine could do."""
    if row.ms is None or row.flops is None or row.floor_bytes is None or row.launches is None:
        return row
    floor_ms = 1e3 * floor_seconds(machine, row.flops, row.floor_bytes)
    launch = machine.launch_seconds
    return replace(
        row,
        floor_ms=floor_ms,
        launch_floor_ms=None if launch is None else 1e3 * launch * row.launches,
        distance=row.ms / floor_ms,
    )


class Skipped(Exception):
    """Why a case is left out."""


class _Bench:
    def __init__(self, device: torch.device, rounds: int) -> None:
        self.device = device
        self.rounds = rounds
        self._known: dict[Case, tuple[int, Counts]] = {}  # in eager mode: the same for all modes

    def rows(self, group: Group) -> list[Row]:
        calls: dict[Case, Callable[[], Any]] = {}
        reasons: dict[Case, str] = {}
        for case in group.cases:
            try:
                calls[case] = self._prepare(case, group.budget)
            except Skipped as reason:
                reasons[case] = str(reason)
        times = alternate(calls, self.device, self.rounds)
        calls.clear()
        self._forget()
        reference = {_size(case): t for case, t in times.items() if case.model == REFERENCE}
        return [
            self._row(group.section, case, times[case], reference.get(_size(case)))
            if case in times
            else Row(group.section, **asdict(case), skipped=reasons[case])
            for case in group.cases
        ]

    def _prepare(self, case: Case, budget: float) -> Callable[[], Any]:
        """A call that fits in memory and in the budget, warmed up in its mode."""
        key = replace(case, mode="eager")
        with _failures_as_skipped(case.mode):
            if key not in self._known:
                self._try_a_part(case, budget)
            task = make_task(case, self.device)
            if key not in self._known:
                parameters = sum(p.numel() for p in task.parameters)
                self._known[key] = (parameters, count(task, self.device))
            self._try(task, budget)
            return ready(task)

    def _try_a_part(self, case: Case, budget: float) -> None:
        """Try a smaller batch: memory and time grow at most in proportion to its size."""
        part = make_task(smaller(case, PART), self.device)
        scale = case.batch / part.case.batch
        memory, free = scale * peak_memory(part, self.device), free_bytes(self.device)
        if memory > free:
            raise Skipped(f"needs about {memory / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")
        self._try(part, budget, scale)  # if a part is too slow, the whole is far too slow

    def _try(self, task: Task, budget: float, scale: float = 1.0) -> None:
        """Skip a case that is over the budget every time; once may be noise of the machine."""
        for _ in range(TRIES):
            seconds = burst(task, 1, self.device)
            if seconds <= budget:
                return
        raise Skipped(f"about {scale * seconds:.1f} s per call, more than allowed (--budget)")

    def _row(self, section: str, case: Case, times: Times, reference: Times | None) -> Row:
        parameters, counts = self._known[replace(case, mode="eager")]
        return Row(
            section,
            **asdict(case),
            ms=times.median,
            ms_least=times.least,
            ms_most=times.most,
            faster=None if reference is None else reference.median / times.median,
            parameters=parameters,
            peak_bytes=counts.peak_bytes,
            flops=counts.flops,
            floor_bytes=floor_bytes(case.work, parameters, case.batch * case.slots * SLOT_DIM),
            launches=counts.launches,
        )

    def _forget(self) -> None:
        """Free the memory and compiled code of the group that is done."""
        if "torch._dynamo" in sys.modules:  # do not import it only for this: that takes a second
            torch._dynamo.reset()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def _size(case: Case) -> tuple[int, int]:
    """The sizes that a model without rules depends on."""
    return case.batch, case.slots


@contextlib.contextmanager
def _failures_as_skipped(mode: Mode) -> Iterator[None]:
    """Skip a case that does not fit in memory or cannot be compiled or captured here."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise Skipped("out of memory") from None
    except RuntimeError as error:
        if mode == "eager":
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise Skipped(f"not {mode}: {lines[0][:120] if lines else 'failed'}") from None
