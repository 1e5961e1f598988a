"""The paper's claims on Sprites-MOT (section 4.3, appendix F.1)."""

from __future__ import annotations

from nps.experiments.claims import Claim, Finding, better, together
from nps.experiments.results import Result
from nps.experiments.sprites.report import METRICS
from nps.experiments.summaries import median, values

LOWER = ("Miss", "IDS", "FP")
"""Metrics of which less is better."""
PAIR = ("sprites", "sprites-op3")


def tracks_better(ours: list[Result], op3: list[Result]) -> Finding:
    (mota, motp), (their_mota, their_motp) = (
        [median(runs, metric, ".1f") for metric in ("mota", "motp")] for runs in (ours, op3)
    )
    return Finding(
        f"MOTA {mota} and MOTP {motp} against {their_mota} and {their_motp}",
        together(*(better(values(ours, m), values(op3, m)) for m in ("mota", "motp"))),
        " and ".join(
            [
                "colours alone have MOTA " + median(ours, "colour_mota", ".1f"),
                "MOTP " + median(ours, "colour_motp", ".1f"),
            ]
        ),
    )


def most_metrics(ours: list[Result], op3: list[Result]) -> Finding:
    """All metrics but switches, of which the paper's rules have more."""
    of_the_paper = [name for name in METRICS if name != "IDS"]
    verdicts = {
        name: better(values(ours, METRICS[name]), values(op3, METRICS[name]), lower=name in LOWER)
        for name in of_the_paper
    }
    ahead = [name for name, verdict in verdicts.items() if verdict == "holds"]
    return Finding(
        f"ahead in {', '.join(ahead) or 'none'}",
        together(*verdicts.values()),
        f"of {', '.join(of_the_paper)}, by two standard errors",
    )


CLAIMS = (
    Claim(
        "section 4.3, table 5",
        "tracks better than OP3's GNN",
        "MOTA 90.7 ± 5.2 and MOTP 79.9 ± 0.3 against 89.1 ± 5.1 and 78.4 ± 2.4",
        PAIR,
        tracks_better,
    ),
    Claim(
        "appendix F.1, table 10",
        "better in seven of eight metrics of tracking",
        "all but ID switches, 0.58 against 0.4",
        PAIR,
        most_metrics,
    ),
    Claim(
        "appendix F.1, figure 10",
        "a slot for each sprite, and its motion predicted",
        "pictures",
        ("sprites",),
        lambda runs: Finding(
            f"MOTA one frame ahead {median(runs, 'ahead1_mota', '.1f')}",
            better(values(runs, "ahead1_mota"), values(runs, "straight1_mota")),
            "against true sprites that go on as they went last, "
            f"{median(runs, 'straight1_mota', '.1f')}",
        ),
    ),
)
