"""Cells of tables over seeds."""

import numpy as np
import pytest

from nps.experiments.results import Result, read_run
from nps.experiments.summaries import count, mean_sd, median, median_run, spread, wall_time
from tests.experiments.runs import session, write_run


@pytest.fixture
def runs(tmp_path):
    return [
        Result("e", "p", "p", seed, {}, {"mse": mse}, [], tmp_path)
        for seed, mse in enumerate([0.3, 0.1, 0.2])
    ]


def test_spread_is_median_and_range(runs):
    assert spread(runs, "mse", ".1f") == "0.2 (0.1 to 0.3)"
    assert spread(runs[:1], "mse", ".1f") == "0.3"


def test_median(runs):
    assert median(runs, "mse", ".1f") == "0.2"
    assert median(runs[:2], "mse", ".2f") == "0.20"


def test_the_median_run_is_in_the_middle(runs):
    assert median_run(runs, "mse").seed == 2
    assert median_run(runs[:2], "mse").seed == 1


def test_count(runs):
    assert count(runs, lambda run: run.test["mse"] < 0.25) == "2 of 3"


def test_mean_and_standard_deviation():
    """Of a sample, as numpy has it with one degree of freedom less."""
    numbers = [97.1, 98.4, 96.2, 99.9]
    assert mean_sd(numbers) == f"{np.mean(numbers):.1f} ± {np.std(numbers, ddof=1):.1f}"
    assert mean_sd([97.14]) == "97.1"


@pytest.mark.parametrize(
    ("sessions", "expected"),
    [
        ([session(0, 100, 12.0)], "12 s a run"),
        ([session(0, 100, 12.0, seeds=5)], "12 s for 5 seeds"),
        ([session(0, 60, 12.0), session(60, 100, 8.0)], "20 s a run"),
        ([session(0, 60, 12.0), session(50, 100, 8.0)], "20 s a run"),  # resumed at a save
        ([session(40, 100, 12.0)], "over 12 s a run"),  # the first was killed
        ([session(0, 60, 12.0), session(70, 100, 8.0, seeds=5)], "over 20 s for 5 seeds"),
    ],
)
def test_a_time_that_is_not_all_known_says_so(tmp_path, sessions, expected):
    run = write_run(tmp_path / "a/seed-0", sessions=sessions, test={})
    assert wall_time([read_run(run)]) == expected
