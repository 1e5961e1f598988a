"""Does each claim of the paper hold? What an experiment states beside its report, and the rules by
which its published runs decide. From these come docs/claims.md and the README's table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from nps.experiments.results import Result

Holds = Literal["holds", "partly", "does not hold", "reversed", "cannot be told", "not run yet"]
"""Reversed: what the paper says is behind is ahead. Cannot be told: our seeds do not show it."""
HOLDS: tuple[Holds, ...] = get_args(Holds)

STANDARD_ERRORS = 2.0
NONE = "–"


@dataclass(frozen=True)
class Finding:
    """What our runs say about a claim, in Markdown."""

    ours: str
    """Our number."""
    holds: Holds
    reason: str
    """One sentence, without a capital and a full stop."""


@dataclass(frozen=True)
class Claim:
    """What the paper says, in Markdown, and which runs decide whether it holds."""

    where: str
    says: str
    paper: str
    """The paper's number."""
    presets: tuple[str, ...] = ()
    """Models whose published runs decide; none if the experiment does not exist yet."""
    decide: Callable[..., Finding] | None = None
    """Called with the runs of each of the presets, in their order."""
    group: str | None = None
    """Group of these runs, such as a game; None takes all."""


def find(
    claim: Claim, published: Sequence[Result], left_out: Mapping[str, str] = MappingProxyType({})
) -> Finding:
    """What the published runs of an experiment say about one of its claims.

    Args:
        claim: of the experiment.
        published: its published runs (`Experiment.published`).
        left_out: groups with runs that are not among them, and why (`Experiment.left_out`).
    """
    if claim.decide is None:
        return Finding(NONE, "not run yet", "not built yet")
    groups = runs_of(claim, published)
    missing = [name for name, runs in zip(claim.presets, groups, strict=True) if not runs]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        where = f" in {claim.group}" if claim.group else ""
        why = left_out.get(claim.group or "", f"no published runs of {names}{where}")
        return Finding(NONE, "not run yet", why.rstrip("."))
    return claim.decide(*groups)


def runs_of(claim: Claim, published: Sequence[Result]) -> list[list[Result]]:
    """The runs of each preset of a claim."""
    asked = [run for run in published if claim.group in (None, run.group)]
    return [[run for run in asked if run.variant == preset] for preset in claim.presets]


def commands(
    experiment: str, flags: Iterable[str], claim: Claim, published: Sequence[Result]
) -> list[str]:
    """The commands that train and test the models of a claim as its published runs were, one for
    each precision.

    Args:
        experiment: its name.
        flags: of `Experiment.flags`. One that differs between runs stands for all its values.
        claim: of the experiment.
        published: the experiment's published runs.
    """
    runs = dict(zip(claim.presets, runs_of(claim, published), strict=True))
    found = [run for group in runs.values() for run in group]
    presets: dict[str, list[str]] = {}
    for preset, group in runs.items():
        presets.setdefault(precision_of(group or found), []).append(preset)
    start = f"nps run {experiment}"
    for flag in flags:
        values = {str(run.config[flag]) for run in found} or {claim.group or flag.upper()}
        start += f" --{flag} {values.pop() if len(values) == 1 else flag.upper()}"
    seeds = len({run.seed for run in found})
    end = f" --seeds {seeds}" if seeds > 1 else ""
    if any(session["device"] != "cpu" for run in found for session in run.provenance):
        end += " --device cuda"
    return [
        f"{start} --presets {' '.join(names)}{end}{precision}"
        for precision, names in presets.items()
    ]


def precision_of(runs: Sequence[Result]) -> str:
    """The flag for the precision that they were trained in; empty for float32, the default."""
    precisions = {str(session["precision"]) for run in runs for session in run.provenance}
    if len(precisions) != 1 or precisions == {"float32"}:
        return ""
    return f" --precision {precisions.pop()}"


# -- rules of decision ----------------------------------------------------------------------------


def better(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    lower: bool = False,
    margin: float = math.inf,
) -> Holds:
    """Whether our values, one a seed, are larger than theirs.

    They are if the means differ by more than two standard errors, and the medians too are in that
    order. Otherwise the claim does not hold if an advantage as large as the paper's can be ruled
    out in the same way.

    Args:
        ours: of the model that the paper says is better.
        theirs: of the other.
        lower: if True, smaller values are better.
        margin: how much better it is in the paper, if it gives numbers.
    """
    sign = -1 if lower else 1
    means = sign * (statistics.fmean(ours) - statistics.fmean(theirs))
    medians = sign * (statistics.median(ours) - statistics.median(theirs))
    error = STANDARD_ERRORS * math.hypot(standard_error(ours), standard_error(theirs))
    if means > error and medians > 0:
        return "holds"
    if means < -error and medians < 0:
        return "reversed"
    return "does not hold" if means + error < margin < math.inf else "cannot be told"


def standard_error(numbers: Sequence[float]) -> float:
    """Of the mean over seeds; infinite for a single one."""
    if len(numbers) == 1:
        return math.inf
    return statistics.stdev(numbers) / math.sqrt(len(numbers))


def together(*parts: Holds) -> Holds:
    """The verdict on a claim of several parts."""
    if len(set(parts)) == 1:
        return parts[0]
    if {"holds", "partly"} & set(parts):
        return "partly"
    return "does not hold" if {"does not hold", "reversed"} & set(parts) else "cannot be told"


def in_most(runs: Sequence[Result], condition: Callable[[Result], bool]) -> Holds:
    """Whether something is so in a seed: in nine of ten it holds, in half of them partly."""
    share = statistics.fmean(map(condition, runs))
    if share >= 0.9:
        return "holds"
    return "partly" if share >= 0.5 else "does not hold"
