"""The paper's claims on falling towers (section 4.2, appendix E.1)."""

from __future__ import annotations

from nps.experiments.claims import Claim, Finding, Holds, better, in_most, together
from nps.experiments.results import Result
from nps.experiments.stacks.presets import NUMBERS
from nps.experiments.stacks.report import LABELS, LEVELS, PAPER
from nps.experiments.summaries import count, median, values

TIMES = {"p1": "over the 15 frames of training", "p2": "over the next 15"}
"""The paper's test and transfer settings."""
BEST = {"parallel": 2, "sequential": 4}
"""The paper's best numbers of rules."""


def lower_error(ours: str, theirs: str, *times: str) -> Claim:
    """The claim that a model has a lower error than another, at these times."""
    published = {preset: dict(zip(TIMES, PAPER[preset], strict=True)) for preset in (ours, theirs)}

    def decide(our_runs: list[Result], their_runs: list[Result]) -> Finding:
        parts = [
            better(
                *(values(runs, f"best10_{time}") for runs in (our_runs, their_runs)),
                lower=True,
                margin=float(published[theirs][time]) - float(published[ours][time]),
            )
            for time in times
        ]
        shown = [
            " and ".join(median(runs, f"best10_{time}", ".2f") for time in times)
            for runs in (our_runs, their_runs)
        ]
        return Finding(" against ".join(shown), together(*parts), "the best of ten draws")

    shown = (" and ".join(published[preset][time] for time in times) for preset in (ours, theirs))
    when = " and ".join(TIMES[time] for time in times)
    says = f"{LABELS[ours]} is better than {LABELS[theirs]} {when}"
    return Claim("section 4.2, table 3", says, " against ".join(shown), (ours, theirs), decide)


def lowest_rests(runs: list[Result]) -> Finding:
    levels = [f"fires_level_{level}" for level in range(LEVELS)]

    def rests(run: Result) -> bool:
        lowest, *upper = (run.number(level) for level in levels)
        return lowest < 0.5 < min(upper)

    shown = ", ".join(median(runs, level, ".0%") for level in levels)
    return Finding(
        f"a rule fires on {shown} of shapes, from the lowest up",
        in_most(runs, rests),
        f"so in {count(runs, rests)} seeds",
    )


def best_number(*runs: list[Result]) -> Finding:
    """Whether no other number of rules has a lower error than the paper's, after training ends."""
    forms = {"parallel": runs[: len(NUMBERS)], "sequential": runs[len(NUMBERS) :]}
    shown: list[str] = []
    parts: list[Holds] = []
    for form, groups in forms.items():
        shown.append(f"{form} {', '.join(median(each, 'best10_p2', '.2f') for each in groups)}")
        errors = dict(zip(NUMBERS, (values(each, "best10_p2") for each in groups), strict=True))
        best = errors.pop(BEST[form])
        found = {better(best, other, lower=True) for other in errors.values()}
        parts.append(
            "holds"
            if found == {"holds"}
            else "does not hold"
            if "reversed" in found
            else "cannot be told"
        )
    numbers = ", ".join(map(str, NUMBERS))
    reason = f"{numbers} rules, the frames after those of training, a fifth of the steps"
    return Finding("; ".join(shown), together(*parts), reason)


CLAIMS = (
    lower_error("stacks", "stacks-rpin", "p1", "p2"),
    lower_error("stacks-rpin", "stacks-snps", "p1"),
    lower_error("stacks-snps", "stacks-rpin", "p2"),
    lower_error("stacks", "stacks-snps", "p1", "p2"),
    Claim(
        "section 4.2, figure 5",
        "the lowest shape takes the null rule most of the time, the others a rule",
        "drawn",
        ("stacks",),
        lowest_rests,
    ),
    Claim(
        "appendix E.1, figure 8",
        "there is a best number of rules",
        "2 parallel, 4 sequential",
        (*(f"stacks-n{n}" for n in NUMBERS), *(f"stacks-snps-n{n}" for n in NUMBERS)),
        best_number,
    ),
)
