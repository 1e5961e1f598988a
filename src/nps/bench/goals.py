"""Goals for the speed of the layers: a time, or a ratio of two times in the same group.

Sparse rules are only worth having if they are cheaper than a dense GNN, and if many rules cost no
more than few. Each goal names its cases, so that `nps bench --only goals` measures only those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nps.bench.cases import MODELS, Case, Group, Mode, Work
from nps.bench.measure import Row

BUDGET = 20.0
"""Seconds per call; the GNN is slow at 20 slots."""


@dataclass(frozen=True)
class Goal:
    """`case` takes at most `bound` ms; or `over` takes `bound` times as long as `case`."""

    text: str
    case: Case
    over: Case | None
    bound: float | None
    """None if it is not a goal itself, but shown for comparison."""
    at_least: bool
    unit: str

    def measured(self, rows: Sequence[Row], *, least: bool = False) -> tuple[float | None, str]:
        """The number, from median times or from the fastest rounds; or None and the reason."""
        found = {row.case: row for row in rows if row.section == "goals"}
        times = []
        for case in (self.case, *([] if self.over is None else [self.over])):
            row = found.get(case)
            time = None if row is None else row.ms_least if least else row.ms
            if time is None:
                why = "not measured" if row is None else row.skipped
                return None, f"{MODELS[case.model].label}: {why}"
            times.append(time)
        return (times[0] if self.over is None else times[1] / times[0]), ""

    def met(self, value: float) -> bool | None:
        if self.bound is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound


def goals(device: str) -> list[Goal]:
    if device == "cuda":
        size = (1024, 5, 10)
        return [
            _time("sequential", "captured", size, 0.20),
            _time("parallel", "captured", size, 0.30),
            _faster("gnn-512", "captured", size, 10.0),
            _faster("gnn-512-lean", "captured", size, None),
            *_flat("captured"),
        ]
    many = [(256, 3, 10), (256, 5, 10), (256, 10, 10), (64, 20, 10)]
    return [
        _faster("gnn-512", "eager", (256, 5, 10), 25.0),
        _faster("gnn-512-lean", "eager", (256, 5, 10), None),
        _faster("gnn-512", "eager", (64, 20, 10), 400.0),
        _faster("gnn-512-lean", "eager", (64, 20, 10), None),
        *[_faster("gnn-128", "eager", size, 1.0) for size in many],
        *[_faster("gnn-128-lean", "eager", size, None) for size in many],
        *_flat("eager"),
    ]


def goal_groups(device: str) -> list[Group]:
    """The cases of all goals; those compared with the same case are one group with it."""
    together: dict[Case, list[Case]] = {}
    for goal in goals(device):
        cases = together.setdefault(goal.case, [goal.case])
        if goal.over is not None:
            cases.append(goal.over)
    return [Group("goals", tuple(cases), BUDGET) for cases in together.values()]


def _text(case: Case) -> str:
    size = f"B={case.batch} M={case.slots} N={case.rules}"
    return f"{MODELS[case.model].label} {case.work}, {size}"


def _at(model: str, work: Work, mode: Mode, size: tuple[int, int, int]) -> Case:
    return Case(model, work, mode, *size)


def _time(model: str, mode: Mode, size: tuple[int, int, int], bound: float) -> Goal:
    case = _at(model, "step", mode, size)
    return Goal(_text(case), case, None, bound, at_least=False, unit="ms")


def _faster(than: str, mode: Mode, size: tuple[int, int, int], bound: float | None) -> Goal:
    case = _at("sequential", "step", mode, size)
    text = f"{_text(case)}, against {MODELS[than].label}"
    return Goal(text, case, _at(than, "step", mode, size), bound, at_least=True, unit="×")


def _flat(mode: Mode) -> list[Goal]:
    """Evaluation runs only the rule that fires: 64 rules should cost about as much as 4."""
    found = []
    for model in ("sequential", "parallel"):
        few, many = (_at(model, "forward", mode, (1024, 5, n)) for n in (4, 64))
        text = f"{_text(few)}, with N=64"
        found.append(Goal(text, few, many, 1.5, at_least=False, unit="×"))
    return found
