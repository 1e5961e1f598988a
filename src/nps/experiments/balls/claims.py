"""The paper's claims on bouncing balls (section 4.2, appendix E.2)."""

from __future__ import annotations

from nps.experiments.balls.tables import PAPER
from nps.experiments.balls.task import TRANSFER
from nps.experiments.claims import Claim, Finding, better, in_most, together
from nps.experiments.results import Result
from nps.experiments.summaries import count, median, values

SPLITS = ("", TRANSFER)
READINGS = ("fg_ari", "ari")
"""The paper's ARI may be of the balls' pixels or of all."""
CALLED = {
    "balls": "sequential NPS",
    "balls-pnps": "parallel NPS",
    "balls-attention": "attention",
    "balls-scoff": "SCOFF",
}


def both(runs: list[Result], reading: str) -> str:
    """With 4 balls, and with 6 to 8."""
    return " and ".join(median(runs, prefix + reading, ".2f") for prefix in SPLITS)


def segments_better(ours: str, theirs: str, says: str, why: str = "") -> Claim:
    """The claim that one model does, with 4 balls and with more; judged in both readings.

    Args:
        ours: the preset that the paper says is better.
        theirs: the other.
        says: the claim.
        why: the reason, or empty for numbers that tell it; beside it stands what else is better
            than the other model, and its best seed.
    """
    margins = [float(a) - float(b) for a, b in zip(PAPER[ours], PAPER[theirs], strict=True)]
    names = CALLED[ours], CALLED[theirs]

    def others(second: list[Result], nothing: list[Result]) -> str:
        best = " and ".join(f"{max(values(second, p + 'fg_ari')):.2f}" for p in SPLITS)
        return (
            f"with places and nothing between the slots {both(nothing, 'fg_ari')}; the best of "
            f"{len(second)} seeds of {names[1]} {best}"
        )

    def decide(first: list[Result], second: list[Result], nothing: list[Result]) -> Finding:
        parts = [
            better(*(values(runs, prefix + ari) for runs in (first, second)), margin=margin)
            for prefix, margin in zip(SPLITS, margins, strict=True)
            for ari in READINGS
        ]
        foreground, all_pixels = (
            f"{names[0]} {both(first, ari)}, {names[1]} {both(second, ari)}" for ari in READINGS
        )
        numbers = (
            f"with nothing between the slots {both(nothing, 'fg_ari')}; ARI of all pixels: "
            f"{all_pixels}"
        )
        shown = f"ARI of the foreground, with 4 balls and with 6 to 8: {foreground}"
        return Finding(
            shown, together(*parts), f"{why}; {others(second, nothing)}" if why else numbers
        )

    paper = " against ".join(" and ".join(PAPER[preset]) for preset in (ours, theirs))
    presets = (ours, theirs, "balls-none")
    return Claim("section 4.2, table 4", says, f"ARI {paper}", presets, decide)


def rules_fire_at_collisions(nps: list[Result]) -> Finding:
    at, elsewhere = "firing_collision", "firing_elsewhere"

    def more(run: Result) -> bool:
        return run.number(at) > run.number(elsewhere)

    return Finding(
        f"a rule fires on {median(nps, at, '.0%')} of balls that collide, on "
        f"{median(nps, elsewhere, '.0%')} of others; on more of the first in {count(nps, more)} "
        "seeds",
        in_most(nps, more),
        "a rule is chosen by its primary slot alone, before that slot has looked at another; the "
        "background, which has its own rule in the figure, is no slot here",
    )


CLAIMS = (
    segments_better(
        "balls",
        "balls-attention",
        "sequential NPS segments better than attention (SCOFF++), also with more balls than in "
        "training",
    ),
    segments_better(
        "balls",
        "balls-scoff",
        "sequential NPS segments better than SCOFF",
        "slots of SCOFF have no places, by which those of the other models find their balls",
    ),
    segments_better("balls", "balls-pnps", "sequential NPS segments better than parallel NPS"),
    segments_better("balls-attention", "balls-pnps", "attention segments better than parallel NPS"),
    Claim(
        "appendix E.2, figure 9",
        "rules fire mainly on balls that touch",
        "one episode",
        ("balls",),
        rules_fire_at_collisions,
    ),
    Claim(
        "appendix E.2, table 9",
        "in OP3, rules segment better than its GNN",
        "ARI 0.51 and 0.34 against 0.32 and 0.14",
    ),
)
