"""The paper's claims on coordinate arithmetic (section 4.1, appendix D)."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import torch

from nps.experiments.arithmetic.config import Config
from nps.experiments.arithmetic.report import PAPER_MSE, PAPER_TABLES, is_clean
from nps.experiments.arithmetic.task import make_layer
from nps.experiments.claims import Claim, Finding, better, in_most, together
from nps.experiments.results import Result
from nps.experiments.summaries import count, median, values
from nps.training.config import from_json
from nps.worlds.arithmetic import OPERATIONS


def one_rule_each(ours: list[Result], sharp: list[Result]) -> Finding:
    return Finding(
        f"clean in {count(ours, is_clean)} seeds, median segregation "
        f"{median(ours, 'segregation', '.2f')}",
        in_most(ours, is_clean),
        "the paper's scores cannot tell the second argument where it may be the point itself; "
        f"where it never is, our schedule finds all four in {count(sharp, is_clean)} seeds",
    )


def lower_error(ours: list[Result], routing: list[Result], noisy: list[Result]) -> Finding:
    nps, *routers = (values(runs, "mse") for runs in (ours, routing, noisy))
    return Finding(
        f"MSE {median(ours, 'mse', '.3g')} against {median(routing, 'mse', '.3g')}",
        together(*(better(nps, router, lower=True) for router in routers)),
        f"a router that explores with the noise of NPS has {median(noisy, 'mse', '.3g')}",
    )


def better_separated(ours: list[Result], routing: list[Result], noisy: list[Result]) -> Finding:
    nps, *routers = (values(runs, "segregation") for runs in (ours, routing, noisy))
    shown = [median(runs, "segregation", ".2f") for runs in (ours, routing, noisy)]
    return Finding(
        f"median segregation {shown[0]} against {shown[1]}",
        together(*(better(nps, router) for router in routers)),
        f"a router that explores has {shown[2]}",
    )


def four_rules_serve(table: list[list[int]]) -> float:
    """Share of uses by the rules that are used most, as many as there are operations."""
    uses = np.sort(np.array(table).sum(0))[::-1]
    return float(uses[: len(OPERATIONS)].sum() / uses.sum())


def four_are_used(published: float) -> Callable[[list[Result]], Finding]:
    """Whether four of more rules serve as many uses as in a table of the paper."""

    def decide(runs: list[Result]) -> Finding:
        def reached(run: Result) -> bool:
            return four_rules_serve(run.test["table"]) >= published

        shares = [four_rules_serve(run.test["table"]) for run in runs]
        even = len(OPERATIONS) / len(runs[0].test["table"][0])
        return Finding(
            f"{statistics.median(shares):.0%} in the median seed",
            in_most(runs, reached),
            f"{count(runs, reached)} seeds reach the paper's share; if all rules were used alike, "
            f"four would serve {even:.0%}",
        )

    return decide


def parameters(run: Result) -> int:
    """Of the whole model."""
    with torch.device("meta"):
        layer = make_layer(from_json(Config, run.config))
    return sum(parameter.numel() for parameter in layer.parameters())


def larger_router(ours: list[Result], routing: list[Result]) -> Finding:
    nps, router = (parameters(runs[0]) for runs in (ours, routing))
    return Finding(
        f"{router / nps:.1f} times",
        "holds" if round(router / nps) >= 4 else "partly" if router > nps else "does not hold",
        f"{router:,} parameters and {nps:,}, of the sizes that the paper gives",
    )


def _served(preset: str) -> float:
    return four_rules_serve(PAPER_TABLES[preset])


CLAIMS = (
    Claim(
        "section 4.1, figure 4",
        "a rule of its own for each operation",
        "“perfectly”",
        ("arithmetic", "arithmetic-sharp"),
        one_rule_each,
    ),
    Claim(
        "section 4.1, figure 4",
        "a routing MLP separates the operations worse",
        "plotted",
        ("arithmetic", "arithmetic-baseline", "arithmetic-baseline-noisy"),
        better_separated,
    ),
    Claim(
        "section 4.1",
        "lower error than a routing MLP",
        f"{PAPER_MSE['arithmetic']} against {PAPER_MSE['arithmetic-baseline']}",
        ("arithmetic", "arithmetic-baseline", "arithmetic-baseline-noisy"),
        lower_error,
    ),
    Claim(
        "section 4.1, table 2",
        "of 5 rules mostly 4 are used",
        f"{_served('arithmetic-5-rules'):.0%} of uses",
        ("arithmetic-5-rules",),
        four_are_used(_served("arithmetic-5-rules")),
    ),
    Claim(
        "a table in a comment of appendix D",
        "of 6 rules mostly 4 are used",
        f"{_served('arithmetic-6-rules'):.0%} of uses",
        ("arithmetic-6-rules",),
        four_are_used(_served("arithmetic-6-rules")),
    ),
    Claim(
        "section 4.1",
        "the routing MLP has more parameters",
        "4 times",
        ("arithmetic", "arithmetic-baseline"),
        larger_router,
    ),
)
