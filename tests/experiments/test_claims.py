"""How published runs decide a claim: the rules, runs that are missing, the commands."""

from pathlib import Path

import numpy as np
import pytest

from nps.experiments import EXPERIMENTS
from nps.experiments.claims import (
    NONE,
    Claim,
    Finding,
    better,
    commands,
    find,
    in_most,
    together,
)
from nps.experiments.results import Result
from nps.experiments.verdicts import check
from tests.experiments.runs import published

CLAIMED = [each for each in EXPERIMENTS.values() if each.claims]


def runs(metric, numbers):
    return published("e", "p", [{metric: number} for number in numbers])


# -- rules of decision ----------------------------------------------------------------------------


def by_numpy(ours, theirs, lower, margin):
    """The docstring of `better`, with numpy's standard errors."""
    ours, theirs = (np.array(numbers) * (-1 if lower else 1) for numbers in (ours, theirs))
    step = ours.mean() - theirs.mean()
    variances = [numbers.var(ddof=1) / len(numbers) for numbers in (ours, theirs)]
    in_order = np.sign(np.median(ours) - np.median(theirs))
    if abs(step) > 2 * sum(variances) ** 0.5 and np.sign(step) == in_order:
        return "holds" if step > 0 else "reversed"
    ruled_out = margin is not None and step + 2 * sum(variances) ** 0.5 < margin
    return "does not hold" if ruled_out else "cannot be told"


def test_better_is_a_matter_of_two_standard_errors():
    random, verdicts = np.random.default_rng(0), set()
    for case in range(300):
        sizes = random.integers(2, 8, 2)
        ours, theirs = (random.normal(loc, 0.5, n) for loc, n in zip((0.3, 0), sizes, strict=True))
        lower, margin = bool(case % 2), (None, 0.1, 2.0)[case % 3]
        given = {} if margin is None else {"margin": margin}
        verdict = better(list(ours), list(theirs), lower=lower, **given)
        assert verdict == by_numpy(ours, theirs, lower, margin)
        verdicts.add(verdict)
    assert verdicts == {"holds", "reversed", "does not hold", "cannot be told"}


def test_few_seeds_and_outliers_tell_nothing():
    assert better([1.0], [0.0]) == "cannot be told"  # one seed has no standard error
    assert better([1.0], [0.0], margin=0.1) == "cannot be told"
    assert better([2.0, 2.0], [1.0, 1.0]) == "holds"
    assert better([1.0, 1.0], [1.0, 1.0]) == "cannot be told"
    assert better([1.0, 1.0], [1.0, 1.0], margin=0.1) == "does not hold"
    # In the mean better, in the middle worse: a few of the others failed.
    ours, theirs = [1.0] * 12, [1.1] * 8 + [-5.0] * 4
    assert better(ours, theirs) == "cannot be told"


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        (("holds", "holds"), "holds"),
        (("reversed", "reversed"), "reversed"),
        (("holds", "reversed"), "partly"),
        (("cannot be told", "holds"), "partly"),
        (("does not hold", "reversed"), "does not hold"),
        (("cannot be told", "reversed"), "does not hold"),
        (("cannot be told", "cannot be told"), "cannot be told"),
    ],
)
def test_parts_make_one_verdict(parts, verdict):
    assert together(*parts) == verdict
    assert together(*reversed(parts)) == verdict


@pytest.mark.parametrize(
    ("count", "verdict"), [(10, "holds"), (9, "holds"), (8, "partly"), (5, "partly"), (4, "no")]
)
def test_in_most_seeds(count, verdict):
    ten = runs("hit", [float(seed < count) for seed in range(10)])
    verdict = "does not hold" if verdict == "no" else verdict
    assert in_most(ten, lambda run: run.test["hit"] == 1.0) == verdict


# -- runs that are there or not -------------------------------------------------------------------


def test_claims_without_runs_are_not_run_yet(tmp_path):
    for experiment in CLAIMED:
        for claim, finding, how in check(experiment, tmp_path / experiment.name):
            assert (finding.ours, finding.holds) == (NONE, "not run yet")
            names = ", ".join(f"`{preset}`" for preset in claim.presets)
            assert names in finding.reason
            assert bool(how) == bool(claim.presets)


def test_a_claim_needs_the_runs_of_all_its_models():
    claim = Claim("w", "s", "p", ("p", "q"), lambda *groups: Finding("", "holds", ""), "pong")
    assert find(claim, runs("m", [1.0])).reason == "no published runs of `p`, `q` in pong"
    assert find(claim, runs("m", [1.0]), {"pong": "Too old."}).reason == "Too old"
    both = Claim("w", "s", "p", ("p", "q"), claim.decide)
    assert find(both, runs("m", [1.0])).reason == "no published runs of `q`"
    assert find(Claim("w", "s", "p", ("p",), claim.decide), runs("m", [1.0])).holds == "holds"


def test_commands_repeat_how_runs_were_made():
    trained = {"device": "NVIDIA H200", "precision": "bf16"}
    made = [
        Result("e", name, name, seed, {"game": game}, {}, [trained], Path(), group=game)
        for name in ("a", "b")
        for game in ("pong", "qbert")
        for seed in range(3)
    ]
    end = "--seeds 3 --device cuda --precision bf16"
    all_games = Claim("w", "s", "p", ("a", "b"))
    (line,) = commands("atari", ["game"], all_games, made)
    assert line == f"nps run atari --game GAME --presets a b {end}"
    (line,) = commands("atari", ["game"], Claim("w", "s", "p", ("b",), None, "qbert"), made)
    assert line == f"nps run atari --game qbert --presets b {end}"
    trained_otherwise = {"device": "cpu", "precision": "float32"}
    other = Result("e", "c", "c", 0, {"game": "pong"}, {}, [trained_otherwise], Path())
    first, second = commands("e", [], Claim("w", "s", "p", ("a", "c")), [*made, other])
    assert first == f"nps run e --presets a {end}"
    assert second == "nps run e --presets c --seeds 3 --device cuda"
    assert commands("e", [], Claim("w", "s", "p", ("a",)), []) == ["nps run e --presets a"]
    assert commands("e", [], Claim("w", "s", "p"), made) == []
