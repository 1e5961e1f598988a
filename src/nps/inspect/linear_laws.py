"""What a rule does, as a formula: thresholded least squares (STLSQ, Brunton et al., 2016).

Of the terms that a change may depend on, those with small coefficients are dropped and the rest is
fitted again, until nothing is dropped. R² is that of examples that were held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy import ndarray

SHARE, SMALLEST = 0.05, 0.02
"""Terms are dropped whose part in a feature's change is below this share of that change, or of the
largest change of any feature."""
ROUNDS = 10
MOST_TERMS, MOST_FEATURES = 3, 3
"""Terms of a change, and changes, that a sentence tells: the largest. The others are counted."""
CONSTANT = ""


@dataclass(frozen=True)
class Law:
    """How the features of a slot change, each by a few terms."""

    names: tuple[str, ...]
    """Of the terms; the last is the constant."""
    coefficients: Float[ndarray, "F C"]
    size: Float[ndarray, "F"]
    """Of the changes, on average."""
    r2: float | None
    """Held out, of all features together; None if nothing varies."""


def fit(
    x: Float[ndarray, "E C"],
    change: Float[ndarray, "E F"],
    names: Sequence[str],
    held_out: Bool[ndarray, "E"],
    constant: bool = True,
) -> Law:
    """The law of changes.

    Args:
        x: what they may depend on.
        change: of F features.
        names: of the columns of x.
        held_out: examples that R² is computed on; the others are fitted.
        constant: whether there is a constant term; not if columns of x already add up to one.
    """
    kept = ~held_out
    design = np.column_stack([x, np.ones(len(x))])
    scale = np.abs(design - design.mean(0)).mean(0)
    scale[-1] = float(constant)
    size = np.abs(change[kept]).mean(0)
    least = np.maximum(SHARE * size, SMALLEST * size.max(initial=0.0))
    coefficients = np.stack(
        [_sparse(design[kept], y, scale, few) for y, few in zip(change[kept].T, least, strict=True)]
    )
    left = change[held_out] - design[held_out] @ coefficients.T
    # Around zero: a rule that always adds the same is explained by saying so.
    spread = float((change[held_out] ** 2).sum())
    r2 = 1.0 - float((left**2).sum()) / spread if spread > 1e-12 else None
    return Law((*names, CONSTANT), coefficients, size, r2)


def _sparse(
    design: Float[ndarray, "E C"], y: Float[ndarray, "E"], scale: Float[ndarray, "C"], least: float
) -> Float[ndarray, "C"]:
    """Least squares with few terms."""
    use = scale > 1e-9
    found = np.zeros(design.shape[1])
    for _ in range(ROUNDS):
        found[:] = 0.0
        if not use.any():
            break
        found[use] = np.linalg.lstsq(design[:, use] / scale[use], y, rcond=None)[0]
        small = use & (np.abs(found) < least)
        if not small.any():
            break
        use &= ~small
    per_unit: Float[ndarray, "C"] = np.divide(found, scale, out=np.zeros_like(found), where=use)
    return per_unit


def sentence(law: Law, targets: Sequence[str], subject: str = "the slot") -> str:
    """The law in words: "row of the slot −= 0.20", one clause a feature that changes.

    A term in brackets is 1 where it is true.
    """
    parts: list[str] = []
    changing = np.flatnonzero((law.coefficients != 0.0).any(1))
    largest = np.argsort(-law.size[changing], kind="stable")[:MOST_FEATURES]
    for i in sorted(changing[largest].tolist()):
        target, row = targets[i], law.coefficients[i]
        terms = [(float(c), n) for c, n in zip(row, law.names, strict=True) if c != 0.0]
        if len(terms) == 1:
            ((coefficient, name),) = terms
            sign = "+=" if coefficient > 0 else "−="
            parts.append(f"{target} of {subject} {sign} {_term(abs(coefficient), name)}")
        else:
            told = sorted(terms, key=lambda term: -abs(term[0]))[:MOST_TERMS]
            total = " ".join(
                f"{'+' if c > 0 else '−'} {_term(abs(c), n)}" for c, n in terms if (c, n) in told
            ).removeprefix("+ ")
            total = f"−{total[2:]}" if total.startswith("− ") else total
            smaller = len(terms) - len(told)
            total += f" and {smaller} smaller" if smaller else ""
            parts.append(f"{target} of {subject} += {total}")
    if len(changing) > MOST_FEATURES:
        parts.append(f"and {len(changing) - MOST_FEATURES} more that change less")
    return ", ".join(parts) if parts else "changes nothing that can be read"


def _term(size: float, name: str) -> str:
    number = f"{size:.2f}" if 0.1 <= size < 100 else f"{size:.2g}"
    if name == CONSTANT:
        return number
    name = f"[{name}]" if " is " in name else name
    return name if abs(size - 1.0) < 0.02 else f"{number} · {name}"
