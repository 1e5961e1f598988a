"""Segregation and mutual information against brute force and scikit-learn."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import normalized_mutual_info_score

from nps.metrics.segregation import (
    assignment,
    normalised_mutual_information,
    segregation,
    usage_table,
)


@st.composite
def uses(draw):
    count = draw(st.integers(1, 60))
    rules = draw(st.integers(1, 5))
    operation = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    rule = draw(st.lists(st.integers(-1, rules - 1), min_size=count, max_size=count))
    return torch.tensor(operation), torch.tensor(rule), rules


@settings(max_examples=60, deadline=None)
@given(uses())
def test_against_brute_force_and_sklearn(case):
    operation, rule, rules = case
    table = usage_table(operation, rule, 4, rules)
    for o in range(4):
        for r in range(rules):
            assert table[o, r] == sum(
                a == o and b == r for a, b in zip(operation.tolist(), rule.tolist(), strict=True)
            )
    fired = rule >= 0
    if not fired.any():
        assert segregation(table) == 0.0
        assert normalised_mutual_information(table) == 0.0
        return
    # Brute force: every way to give different operations different rules.
    wide = np.pad(table, ((0, 0), (0, max(0, 4 - rules))))
    best = max(
        sum(wide[o, r] for o, r in enumerate(p))
        for p in itertools.permutations(range(wide.shape[1]), 4)
    )
    assert segregation(table) == pytest.approx(best / int(fired.sum()))
    expected = normalized_mutual_info_score(operation[fired].numpy(), rule[fired].numpy())
    assert normalised_mutual_information(table) == pytest.approx(expected, abs=1e-9)


def test_perfect_mixed_and_split():
    assert segregation(np.diag([5, 5, 5, 5])) == 1.0
    assert normalised_mutual_information(np.diag([5, 5, 5, 5])) == pytest.approx(1.0)
    assert segregation(np.full((4, 4), 5)) == 0.25
    assert normalised_mutual_information(np.full((4, 4), 5)) == pytest.approx(0.0)
    # the paper's table with five rules
    paper = np.array(
        [[360, 99, 45, 13, 0], [0, 482, 0, 1, 0], [0, 57, 15, 99, 335], [0, 39, 453, 2, 0]]
    )
    assert assignment(paper) == {0: 0, 1: 1, 2: 4, 3: 2}
    assert segregation(paper) == pytest.approx((360 + 482 + 335 + 453) / 2000)
