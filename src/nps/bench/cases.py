"""What is measured: models, workloads and sizes, and which of them are compared.

A case is one model under one workload at one size. The cases of a group are measured in
alternation, so that noise affects all of them alike; ratios are taken within a group only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

from torch import nn

from nps.interactions import GNN, Attention, TransformerLayer
from nps.rules import ParallelNPS, SequentialNPS

Work = Literal["forward", "step", "rollout"]
Mode = Literal["eager", "compiled", "captured", "compiled+captured"]
Axis = Literal["batch", "slots", "rules"]

WORKS: tuple[Work, ...] = ("forward", "step", "rollout")
MODES: tuple[Mode, ...] = ("eager", "compiled", "captured", "compiled+captured")
SLOT_DIM = 64
REFERENCE = "gnn-512"
QUICK_MODELS = ("sequential", "parallel", "gnn-512", "gnn-512-lean", "gnn-128", "attention")


class Model(NamedTuple):
    label: str
    """Short, for tables; K is the number of stages, 1 unless stated."""
    make: Callable[[int], nn.Module]
    """From the number of rules, which models without rules ignore."""
    has_rules: bool = False


def _dense(make: Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
    return lambda rules: make()


MODELS = {
    "sequential": Model("Sequential", partial(SequentialNPS, SLOT_DIM), True),
    "sequential-3": Model("Sequential K=3", partial(SequentialNPS, SLOT_DIM, stages=3), True),
    "parallel": Model("Parallel", partial(ParallelNPS, SLOT_DIM), True),
    "parallel-3": Model("Parallel K=3", partial(ParallelNPS, SLOT_DIM, stages=3), True),
    "gnn-512": Model("GNN 512", _dense(partial(GNN, SLOT_DIM, lean=False))),
    "gnn-512-lean": Model("GNN 512 lean", _dense(partial(GNN, SLOT_DIM))),
    "gnn-128": Model("GNN 128", _dense(partial(GNN, SLOT_DIM, hidden_dim=128, lean=False))),
    "gnn-128-lean": Model("GNN 128 lean", _dense(partial(GNN, SLOT_DIM, hidden_dim=128))),
    "attention": Model("Attention", _dense(partial(Attention, SLOT_DIM))),
    "transformer": Model("Transformer", _dense(partial(TransformerLayer, SLOT_DIM))),
}


@dataclass(frozen=True)
class Case:
    """One model, one workload, one size. Models without rules ignore `rules`."""

    model: str
    work: Work
    mode: Mode
    batch: int
    slots: int
    rules: int

    def __str__(self) -> str:
        size = f"B={self.batch}, M={self.slots}, N={self.rules}"
        return f"{MODELS[self.model].label}, {self.work}, {self.mode}, {size}"


@dataclass(frozen=True)
class Group:
    """Cases of one workload and one mode, measured in alternation."""

    section: str
    cases: tuple[Case, ...]
    budget: float
    """Seconds that one call may take; slower cases are left out and listed."""


@dataclass(frozen=True)
class Grid:
    """The centre, and the values along each axis through it."""

    centre: tuple[int, int, int]
    """Batch, slots, rules."""
    batch: tuple[int, ...]
    slots: tuple[int, ...]
    rules: tuple[int, ...]

    def of(self, device: str, quick: bool) -> Grid:
        """This grid, with missing values (0 or empty) replaced by the defaults."""
        default = _default_grid(device, quick)
        filled = [getattr(self, axis) or getattr(default, axis) for axis in AXES]
        centre = tuple(
            given or (middle if middle in values else values[0])
            for given, middle, values in zip(self.centre, default.centre, filled, strict=True)
        )
        return Grid(centre, *filled)  # type: ignore[arg-type]


AXES: tuple[Axis, ...] = ("batch", "slots", "rules")


def _default_grid(device: str, quick: bool) -> Grid:
    if quick:
        return Grid((64, 5, 10), (64,), (2, 5, 8), (4, 10, 64))
    return Grid(
        centre=(1024 if device == "cuda" else 256, 5, 10),
        batch=(64, 256, 1024, 4096, 8192),
        slots=(2, 3, 5, 10, 20, 32, 64),
        rules=(1, 2, 4, 8, 10, 16, 32, 64),
    )


def sweep(
    section: str,
    grid: Grid,
    models: Sequence[str],
    works: Sequence[Work],
    modes: Sequence[Mode],
    budget: float,
) -> list[Group]:
    """All models side by side at the centre, or at each value of one axis through it."""
    middle = dict(zip(AXES, grid.centre, strict=True))
    sizes = [middle]
    if section == "rules":  # the others do not depend on the number of rules
        models = [name for name in models if MODELS[name].has_rules or name == REFERENCE]
    if section in AXES:
        sizes = [{**middle, section: value} for value in getattr(grid, section)]
    return [
        Group(section, tuple(Case(model, work, mode, **size) for model in models), budget)
        for size in sizes
        for work in works
        for mode in modes
    ]


def once(groups: Iterable[Group]) -> list[Group]:
    """Drop the groups that an earlier section already measures: every axis contains the centre."""
    first: dict[tuple[Case, ...], Group] = {}
    for group in groups:
        first.setdefault(group.cases, group)
    return list(first.values())


def smaller(case: Case, factor: int) -> Case:
    """The same case with a fraction of the batch, to try before one that may be too large."""
    return replace(case, batch=max(1, case.batch // factor))
