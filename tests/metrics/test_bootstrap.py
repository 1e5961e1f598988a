"""Intervals against scipy's bootstrap and binomial test, and by how often they hold the truth."""

import numpy as np
import pytest
from scipy import stats

from nps.metrics.bootstrap import mean_interval


@pytest.mark.parametrize("count", [12, 50, 300])
def test_the_interval_is_that_of_scipy(count):
    hits = (np.random.default_rng(count).random(count) < 0.4).astype(float)
    expected = stats.bootstrap(
        (hits,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert mean_interval(hits) == pytest.approx(tuple(expected), abs=0.03)
    assert mean_interval(hits) == mean_interval(hits)  # seeded


@pytest.mark.parametrize("count", [1, 2, 5, 30, 500])
def test_equal_outcomes_get_the_exact_binomial_bound(count):
    """Two hits of two do not show that all steps are right."""
    test = stats.binomtest(count, count, alternative="greater")
    low = test.proportion_ci(0.95, method="exact").low
    assert mean_interval(np.ones(count)) == pytest.approx((low, 1.0))
    assert mean_interval(np.zeros(count)) == pytest.approx((0.0, 1.0 - low))
    no_gain = mean_interval(np.zeros(count), limits=(-1.0, 1.0))
    assert no_gain == pytest.approx((-2 * (1 - low), 2 * (1 - low)) if count > 4 else (-1, 1))


def test_roll_outs_are_resampled_whole():
    """Steps of one roll-out that are right or wrong together are one piece of evidence."""
    count = np.full(40, 10.0)
    together = np.repeat([0.0, 10.0], 20)
    apart = np.full(40, 5.0) + np.tile([1.0, -1.0], 20)
    wide, narrow = mean_interval(together, count), mean_interval(apart, count)
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)
    assert wide == mean_interval(together / 10)


def test_longer_roll_outs_weigh_more():
    total, count = np.array([0.0, 9.0] * 30), np.array([1.0, 9.0] * 30)
    low, high = mean_interval(total, count)
    assert low < 0.9 < high
    assert low > 0.8


def test_the_interval_holds_the_truth_mostly():
    random = np.random.default_rng(0)
    held = [
        low <= 0.3 <= high
        for low, high in (mean_interval((random.random(60) < 0.3) * 1.0) for _ in range(200))
    ]
    assert 0.88 <= np.mean(held) <= 1.0


def test_nothing_measured():
    with pytest.raises(ValueError, match="not empty"):
        mean_interval(np.zeros(0))
