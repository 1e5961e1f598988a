"""The paper's claims on MNIST transformation (section 4.1, appendix C)."""

from __future__ import annotations

import statistics

from nps.experiments.claims import Claim, Finding, in_most, together
from nps.experiments.mnist.report import PAPER_MSE, is_perfect
from nps.experiments.results import Result
from nps.experiments.summaries import count, median, values


def one_rule_each(ours: list[Result], balanced: list[Result]) -> Finding:
    return Finding(
        f"in {count(ours, is_perfect)} seeds",
        in_most(ours, is_perfect),
        "elsewhere two operations share a rule, or it is applied to the operation's slot; with our "
        f"balanced preset {count(balanced, is_perfect)} are perfect",
    )


def as_low_an_error(ours: list[Result], mlp: list[Result]) -> Finding:
    reached = statistics.median(values(ours, "mse")) <= float(PAPER_MSE["mnist"])
    black = ours[0].test["floors"]["black"]
    return Finding(
        f"MSE {median(ours, 'mse')}",
        "holds" if reached else "does not hold",
        f"it says little: a black picture has {black:.4f}, one MLP without rules "
        f"{median(mlp, 'mse')}",
    )


def longest(run: Result, of: str) -> float:
    """Error of the longest sequence of operations."""
    return float(run.test["composition"][of][-1])


def rules_compose(ours: list[Result], balanced: list[Result], mlp: list[Result]) -> Finding:
    length = ours[0].test["composition"]["length"][-1]
    rules, even, one = (
        statistics.median(longest(run, "pictures") for run in runs)
        for runs in (ours, balanced, mlp)
    )
    return Finding(
        f"MSE after {length} operations {rules:.4f}; balanced preset {even:.4f}, a black picture "
        f"{longest(ours[0], 'black'):.4f}",
        in_most(ours, lambda run: longest(run, "pictures") < longest(run, "black")),
        f"through pictures; one MLP without rules composes too ({one:.4f}), and in the slot, "
        "without drawing in between, neither does",
    )


def others_stay(run: Result) -> bool:
    """Whether the pictures of all other operations are the same, bit for bit, after any operation's
    rule was deleted; or of all old ones after a fifth was added."""
    if "fifth" in run.test:
        return all(run.test["fifth"]["equal"])
    cuts = run.test["deletion"]
    return all(cut["equal"][o] for cut in cuts for o in range(len(cuts)) if o != cut["deleted"])


def rules_are_modular(ours: list[Result], balanced: list[Result], fifth: list[Result]) -> Finding:
    shown = [count(runs, others_stay) for runs in (ours, balanced, fifth)]
    return Finding(
        f"a rule deleted, other pictures are equal bit for bit in {shown[0]} seeds; balanced "
        f"preset {shown[1]}, a fifth rule added {shown[2]}",
        together(*(in_most(runs, others_stay) for runs in (ours, balanced, fifth))),
        "where two operations share a rule, both go with it",
    )


CLAIMS = (
    Claim(
        "section 4.1, table 1",
        "one rule for each operation",
        "“perfectly”",
        ("mnist", "mnist-balanced"),
        one_rule_each,
    ),
    Claim(
        "section 4.1",
        "a low error",
        f"MSE {PAPER_MSE['mnist']}",
        ("mnist", "mnist-mlp"),
        as_low_an_error,
    ),
    Claim(
        "appendix C, figure 7",
        "rules picked by hand compose any sequence of operations",
        "pictures",
        ("mnist", "mnist-balanced", "mnist-mlp"),
        rules_compose,
    ),
    Claim(
        "section 2",
        "a rule can be deleted or added without changing others",
        "not tested",
        ("mnist", "mnist-balanced", "mnist-fifth"),
        rules_are_modular,
    ),
)
