"""The tree against scikit-learn's, and its lines."""

import numpy as np
import pytest

from nps.inspect.trees import Leaf, Split, best_split, grow, lines, predict

sklearn_tree = pytest.importorskip("sklearn.tree")


def example(seed, count=300, columns=5):
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, columns))
    y = ((x[:, 0] > 0.2) & (x[:, 2] < 0.5)) | (random.random(count) < 0.1)
    return x, y


def test_it_answers_as_scikit_learn_does():
    agreement = []
    for seed in range(9):
        x, y = example(seed)
        theirs = sklearn_tree.DecisionTreeClassifier(
            max_depth=3, min_samples_leaf=5, min_impurity_decrease=1e-3, random_state=0
        ).fit(x, y)
        new = np.random.default_rng(seed + 100).normal(size=(1_000, x.shape[1]))
        agreement.append((predict(grow(x, y), new) == theirs.predict(new)).mean())
    assert np.median(agreement) == 1.0
    assert min(agreement) > 0.95  # of equally good splits theirs is a random one


def test_the_best_split_by_trying_all():
    for seed in range(5):
        x, y = example(seed, count=40, columns=3)

        def impurity(side, y=y):
            share = y[side].mean()
            return 2 * share * (1 - share) * side.sum() / len(y)

        everyone = np.ones(len(y), bool)
        gains = {}
        for column in range(3):
            values = np.unique(x[:, column])
            for threshold in (values[1:] + values[:-1]) / 2:
                left = x[:, column] <= threshold
                parts = impurity(left) + impurity(~left)
                gains[column, threshold] = impurity(everyone) - parts
        column, threshold, gain = best_split(x, y)
        assert gain == pytest.approx(max(gains.values()))
        assert gains[column, threshold] == pytest.approx(gain)


def test_a_planted_condition_is_found_and_said():
    random = np.random.default_rng(0)
    x = np.column_stack([random.random(400), random.integers(0, 2, 400)]).astype(float)
    tree = grow(x, (x[:, 0] > 0.6) & (x[:, 1] == 1))
    said = lines(tree, ["row", "action is up"], {"action is up": "action is not up"})
    assert said[0].startswith("row > 0.59")
    assert said[1:3] == [
        "  action is up: fires (100% of 84)",
        "  action is not up: does not (0% of 91)",
    ]
    assert said[3].startswith("row ≤ 0.59")
    assert said[3].endswith(": does not (0% of 225)")
    below = lines(grow(-x, x[:, 0] > 0.6), ["row", "column"])
    assert [line.split(" −0.")[0] for line in below] == ["row ≤", "row >"]  # a true minus


def test_where_there_is_nothing_to_say():
    x = np.zeros((30, 2))
    assert grow(x, np.arange(30) % 2 == 0) == Leaf(0.5, 30)
    assert best_split(x, np.arange(30) % 2 == 0) is None
    assert grow(np.random.default_rng(0).normal(size=(30, 2)), np.ones(30, bool)) == Leaf(1.0, 30)
    assert lines(Leaf(1.0, 30), []) == ["fires (100% of 30)"]
    tree = grow(np.arange(8.0)[:, None], np.arange(8) > 5)  # too few for two leaves of five
    assert isinstance(tree, Leaf)


def test_depth_and_leaves_are_bounded():
    x, y = example(0, count=2_000)
    y = y ^ (np.random.default_rng(1).random(2_000) < 0.3)

    def depth(tree):
        return 0 if isinstance(tree, Leaf) else 1 + max(depth(tree.left), depth(tree.right))

    def leaves(tree):
        return [tree.count] if isinstance(tree, Leaf) else leaves(tree.left) + leaves(tree.right)

    tree = grow(x, y)
    assert isinstance(tree, Split)
    assert depth(tree) <= 3
    assert min(leaves(tree)) >= 5
    assert sum(leaves(tree)) == 2_000
