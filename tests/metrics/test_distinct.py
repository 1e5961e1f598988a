"""Predicted steps among distinct states, against plain loops in exact arithmetic."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nps.metrics.distinct import predicted_among
from tests.metrics.test_ranking import distance, draw_states


def by_loops(predicted, states, right):
    credit, nearest = [], []
    for one, own in zip(predicted, right.tolist(), strict=True):
        apart = [distance(one, state) for state in states]
        tied = [c for c, each in enumerate(apart) if each == min(apart)]
        credit.append(Fraction(1, len(tied)) if own in tied else Fraction(0))
        nearest.append(own if own in tied else tied[0])
    return [float(each) for each in credit], nearest


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 7), st.integers(1, 60))
def test_credit_against_loops_for_every_chunk(seed, count, states, chunk):
    predicted, candidates = draw_states(seed, count, 2, 3), draw_states(seed + 1, states, 2, 3)
    right = torch.arange(count) % states
    credit, nearest = predicted_among(predicted, candidates, right, chunk=chunk)
    expected, where = by_loops(predicted, candidates, right)
    torch.testing.assert_close(credit, torch.tensor(expected))
    assert nearest.tolist() == where


def test_an_encoder_that_sees_nothing_is_at_chance_level():
    same = torch.full((40, 3, 4), 0.1)
    credit, _ = predicted_among(same[:25], same, torch.arange(25))
    torch.testing.assert_close(credit, torch.full((25,), 1 / 40))


def test_the_perfect_and_the_lazy_model():
    states = torch.randn(30, 2, 3)
    right = torch.arange(1, 30)
    assert predicted_among(states[1:], states, right)[0].tolist() == [1] * 29
    assert predicted_among(states[:-1], states, right)[0].tolist() == [0] * 29


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (r"states: got shape \(4, 3\), expected \(C, ...\) as predicted, \(5, 2\)", (2, 3, 5, 3)),
        (r"right: got \(4,\) numbers, expected 5 from 0 to 3", (2, 2, 4, 3)),
        (r"right: got \(5,\) numbers, expected 5 from 0 to 3", (2, 2, 5, 4)),
    ],
)
def test_bad_input_is_reported_in_one_line(message, arguments):
    size, other, count, most = arguments
    with pytest.raises(ValueError, match=message):
        predicted_among(torch.zeros(5, size), torch.zeros(4, other), torch.full((count,), most))
