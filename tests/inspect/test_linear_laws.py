"""Laws with planted terms are recovered, and held-out R² is that of plain numpy."""

import numpy as np
import pytest

from nps.inspect.linear_laws import fit, sentence


def example(noise=0.0, count=300, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 5))
    change = np.column_stack([0.2 * x[:, 1] - 0.5 * x[:, 4], np.full(count, -0.2), np.zeros(count)])
    return x, change + noise * random.normal(size=change.shape), np.arange(count) % 3 == 2


def test_planted_terms_are_recovered():
    x, change, held_out = example(noise=0.01)
    law = fit(x, change, list("abcde"), held_out)
    expected = np.zeros((3, 6))
    expected[0, 1], expected[0, 4], expected[1, 5] = 0.2, -0.5, -0.2
    np.testing.assert_allclose(law.coefficients, expected, atol=0.005)
    assert np.array_equal(law.coefficients != 0, expected != 0)
    assert law.r2 > 0.99
    assert sentence(law, ["row", "column", "size"]) == (
        "row of the slot += 0.20 · b − 0.50 · e, column of the slot −= 0.20"
    )


def test_r2_is_held_out():
    x, change, held_out = example(noise=0.3)
    law = fit(x, change, list("abcde"), held_out)
    predicted = np.column_stack([x, np.ones(len(x))]) @ law.coefficients.T
    left = ((change - predicted)[held_out] ** 2).sum()
    assert law.r2 == pytest.approx(1 - left / (change[held_out] ** 2).sum())
    noise = np.random.default_rng(0).normal(size=change.shape)
    assert fit(x, noise, list("abcde"), held_out).r2 < 0.2


def test_actions_take_the_place_of_a_constant():
    random = np.random.default_rng(0)
    up = random.integers(0, 2, 200).astype(float)
    x = np.column_stack([up, 1 - up])
    change, names = np.where(up, -0.1, 1.0)[:, None], ["action is up", "action is down"]
    law = fit(x, change, names, np.arange(200) % 3 == 0, constant=False)
    said = "row of the slot += −0.10 · [action is up] + [action is down]"
    assert sentence(law, ["row"]) == said
    assert law.r2 == pytest.approx(1.0)


def test_nothing_changes():
    x, change, held_out = example()
    law = fit(x, 0 * change, list("abcde"), held_out)
    assert law.r2 is None
    assert sentence(law, ["row", "column", "size"]) == "changes nothing that can be read"


def test_of_many_terms_the_largest_are_told():
    """As many as of a slot that is read as its bare numbers."""
    x = np.random.default_rng(0).normal(size=(300, 20))
    law = fit(
        x, x @ np.arange(10.0, 30.0)[:, None], [f"z{i}" for i in range(20)], np.arange(300) % 3 == 0
    )
    assert sentence(law, ["row"]) == (
        "row of the slot += 27.00 · z17 + 28.00 · z18 + 29.00 · z19 and 17 smaller"
    )


def test_of_many_changes_the_largest_are_told():
    x = np.random.default_rng(0).normal(size=(300, 1))
    sizes = np.array([1.0, 5.0, 3.0, 4.0, 2.0])
    law = fit(x, x * sizes, ["z"], np.arange(300) % 3 == 0)
    assert sentence(law, list("abcde")) == (
        "b of the slot += 5.00 · z, c of the slot += 3.00 · z, d of the slot += 4.00 · z, "
        "and 2 more that change less"
    )
