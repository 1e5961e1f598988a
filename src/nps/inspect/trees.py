"""A small classification tree (CART, Breiman et al., 1984) that reads as a few lines.

Splits are the thresholds of one column with the largest gain in Gini impurity, depth at most 3. It
says when a rule fires in words; it is no model to predict with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy import ndarray

DEPTH, LEAST = 3, 5
"""Splits from root to leaf, and examples in a leaf."""
GAIN = 1e-3
"""Least gain in impurity of a split, as a share of all examples: smaller ones say nothing."""


@dataclass(frozen=True)
class Leaf:
    """A share of the examples is positive."""

    share: float
    count: int

    @property
    def says(self) -> bool:
        return self.share > 0.5


@dataclass(frozen=True)
class Split:
    """Examples whose column is at most the threshold go left."""

    column: int
    threshold: float
    left: Tree
    right: Tree


Tree = Leaf | Split


def grow(
    x: Float[ndarray, "E C"], y: Bool[ndarray, "E"], depth: int = DEPTH, least: int = LEAST
) -> Tree:
    """A tree that tells positive examples from the others."""
    return _grow(np.asarray(x, float), np.asarray(y, bool), depth, least, len(y))


def _grow(
    x: Float[ndarray, "E C"], y: Bool[ndarray, "E"], depth: int, least: int, whole: int
) -> Tree:
    leaf = Leaf(float(y.mean()) if len(y) else 0.0, len(y))
    if depth == 0 or leaf.share in (0.0, 1.0) or len(y) < 2 * least:
        return leaf
    found = best_split(x, y, least)
    if found is None or found[2] * len(y) / whole < GAIN:
        return leaf
    column, threshold, _ = found
    left = x[:, column] <= threshold
    parts = (_grow(x[side], y[side], depth - 1, least, whole) for side in (left, ~left))
    low, high = parts
    if isinstance(low, Leaf) and isinstance(high, Leaf) and low.says == high.says:
        return leaf  # the split changes no answer
    return Split(column, threshold, low, high)


def best_split(
    x: Float[ndarray, "E C"], y: Bool[ndarray, "E"], least: int = 1
) -> tuple[int, float, float] | None:
    """Column, threshold and gain in Gini impurity of the best split; None if there is none."""
    count = len(y)
    order = np.argsort(x, axis=0, kind="stable")
    values = np.take_along_axis(x, order, axis=0)
    positive = np.cumsum(y[order], axis=0, dtype=float)[:-1]  # among the first 1, 2, …
    n = np.arange(1, count, dtype=float)[:, None]
    total = float(y.sum())
    rest = count - n
    impurity = _gini(positive / n) * n + _gini((total - positive) / rest) * rest
    gain = _gini(total / count) - impurity / count
    able = (values[1:] > values[:-1]) & (n >= least) & (rest >= least)
    gain = np.where(able, gain, -np.inf)
    if not able.any():
        return None
    # The first column of those that are equally good, up to rounding.
    best = gain.max()
    column, row = np.argwhere((gain >= best - 1e-12).T)[0]
    threshold = (values[row, column] + values[row + 1, column]) / 2
    return int(column), float(threshold), float(best)


def _gini(share: Float[ndarray, "*shape"] | float) -> Float[ndarray, "*shape"]:
    return np.asarray(2.0 * share * (1.0 - share))


def predict(tree: Tree, x: Float[ndarray, "E C"]) -> Bool[ndarray, "E"]:
    """What the tree says of examples."""
    if isinstance(tree, Leaf):
        return np.full(len(x), tree.says)
    left = x[:, tree.column] <= tree.threshold
    return np.where(left, predict(tree.left, x), predict(tree.right, x))


def lines(
    tree: Tree, names: Sequence[str], truths: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """The tree as indented lines, where positive means that a rule fires.

    Of two branches, the one in which it fires more comes first.

    Args:
        tree: grown.
        names: of the columns.
        truths: names of columns that are 1 where something is true and 0 elsewhere, and how it is
            said that it is not: "action is north" -> "action is not north".
    """
    return [_leaf(tree)] if isinstance(tree, Leaf) else _lines(tree, names, truths, "")


def _lines(tree: Split, names: Sequence[str], truths: Mapping[str, str], indent: str) -> list[str]:
    found, name = [], names[tree.column]
    branches = sorted(((tree.right, True), (tree.left, False)), key=lambda each: -_share(each[0]))
    for part, above in branches:
        if name in truths:
            question = name if above else truths[name]
        else:
            threshold = f"{tree.threshold:.3g}".replace("-", "−")
            question = f"{name} {'>' if above else '≤'} {threshold}"
        if isinstance(part, Leaf):
            found.append(f"{indent}{question}: {_leaf(part)}")
        else:
            found += [f"{indent}{question}:", *_lines(part, names, truths, indent + "  ")]
    return found


def _share(tree: Tree) -> float:
    """Of the examples of a part that are positive."""
    counts = _counts(tree)
    return counts[0] / max(1.0, counts[1])


def _counts(tree: Tree) -> tuple[float, float]:
    if isinstance(tree, Leaf):
        return tree.share * tree.count, tree.count
    left, right = _counts(tree.left), _counts(tree.right)
    return left[0] + right[0], left[1] + right[1]


def _leaf(leaf: Leaf) -> str:
    return f"{'fires' if leaf.says else 'does not'} ({leaf.share:.0%} of {leaf.count})"
