"""The paper's claims on pushing blocks (section 4.3, appendix F.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nps.experiments.blocks.report import STAGES
from nps.experiments.claims import Claim, Finding, better, together
from nps.experiments.results import Result
from nps.experiments.summaries import values
from nps.experiments.world_models.config import HORIZONS
from nps.experiments.world_models.report import mean_percent

LAST = max(HORIZONS)
METRICS = {"h1": "H@1", "mrr": "MRR"}
PAIRS = ("blocks-nps", "blocks-gnn", "blocks-fixed-nps", "blocks-fixed-gnn")
IN_ORDER = tuple(STAGES["Paper's world"].values()), tuple(STAGES["Fixed palette"].values())


def after_the_last(runs: Sequence[list[Result]], metric: str) -> list[str]:
    """In per cent, of each model."""
    return [mean_percent(each, f"{metric}_{LAST}") for each in runs]


def better_than_the_gnn(metric: str) -> Callable[..., Finding]:
    """Also where episodes differ in positions only, so that dynamics are all there is to learn."""

    def decide(*runs: list[Result]) -> Finding:
        nps, gnn, fixed_nps, fixed_gnn = runs
        parts = [
            better(*(values(each, f"{metric}_{step}") for each in pair))
            for pair in ((nps, gnn), (fixed_nps, fixed_gnn))
            for step in HORIZONS
        ]
        ours = after_the_last(runs, metric)
        still = after_the_last((nps, gnn), f"identity_{metric}")
        free = [mean_percent(each, "moves_free") for each in (nps, gnn)]
        return Finding(
            f"{METRICS[metric]} after {LAST} steps {ours[0]}, GNN {ours[1]}; with a fixed palette "
            f"{ours[2]}, GNN {ours[3]}",
            together(*parts),
            f"in the paper's world they predict {free[0]}% and {free[1]}% of free moves; where "
            f"nothing moves at all it is {still[0]} and {still[1]}",
        )

    return decide


def more_stages_are_better(*runs: list[Result]) -> Finding:
    worlds = runs[: len(IN_ORDER[0])], runs[len(IN_ORDER[0]) :]
    stages = ", ".join(map(str, STAGES["Paper's world"]))
    parts = [
        better(*(values(each, f"{metric}_{step}") for each in (most, one)))
        for one, *_, most in worlds
        for metric in METRICS
        for step in HORIZONS
    ]
    ours, fixed = (", ".join(after_the_last(world, "h1")) for world in worlds)
    return Finding(
        f"H@1 after {LAST} steps, {stages} stages: {ours}; with a fixed palette {fixed}",
        together(*parts),
        "the most stages against one, H@1 and MRR; in a comment the paper's source says that more "
        "stages lower the MRR",
    )


CLAIMS = (
    Claim(
        "section 4.3, figure 6 (a)",
        "better than a GNN",
        "H@1, plotted",
        PAIRS,
        better_than_the_gnn("h1"),
    ),
    Claim(
        "appendix F.2, figure 12 (a)",
        "better than a GNN in MRR",
        "plotted",
        PAIRS,
        better_than_the_gnn("mrr"),
    ),
    Claim(
        "appendix F.2, figure 12 (b)",
        "more stages are better",
        "plotted",
        (*IN_ORDER[0], *IN_ORDER[1]),
        more_stages_are_better,
    ),
)
