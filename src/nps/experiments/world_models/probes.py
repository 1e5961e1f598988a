"""Linear probes: what people can read of a slot, such as the row and column of its object.

A probe is fitted on encodings of training images and judged on others: R² on held-out images,
beside that of the same fit to shuffled values, which shows what chance gives. All slots share one
probe, as they share the encoder and the rules; where one map shows its object light and another
dark, each slot needs its own (`SlotProbes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

LEAST = 0.8
"""Held-out R² from which a probe is used."""
HELD_OUT = 4
"""One of so many images is held out."""
STILL = 1e-3
"""Standard deviation of what does not vary: a thousandth of the picture."""
RIDGE = 1e-3
"""Of the average variance of a slot's numbers. Without it a probe reads directions that hardly vary
in encodings, which are noise in predictions."""


@dataclass(frozen=True)
class Probe:
    """A linear map from slots to named features."""

    names: tuple[str, ...]
    weight: Float[ndarray, "D F"]
    bias: Float[ndarray, "F"]
    change: Float[ndarray, "F D"]
    """Row f: how slots change where feature f is larger by 1 and the other features are the same.
    Of all such changes, the smallest in units of how slots vary in training: it stays among slots
    that the encoder gives, where the plain pseudo-inverse leaves them."""
    r2: Float[ndarray, "F"]
    """On held-out images."""
    chance: Float[ndarray, "F"]
    """R² of a probe of shuffled values, on the same images."""

    @classmethod
    def fit(
        cls,
        names: Sequence[str],
        slots: Float[ndarray, "n M D"],
        values: Float[ndarray, "n M F"],
        seed: int = 0,
    ) -> Self:
        """Fit on n images of M slots; a slot with a value that is NaN does not count.

        Args:
            names: of the F features.
            slots: encodings.
            values: the true values.
            seed: of the shuffled values.
        """
        held = np.arange(len(slots)) % HELD_OUT == HELD_OUT - 1
        fitted, tested = (_pairs(slots[some], values[some]) for some in (~held, held))
        weight, bias = _solve(*fitted)
        shuffled = np.random.default_rng(seed).permutation(fitted[1])
        return cls(
            tuple(names),
            weight,
            bias,
            _changes(fitted[0], weight),
            _r2(tested, weight, bias),
            _r2(tested, *_solve(fitted[0], shuffled)),
        )

    @property
    def usable(self) -> bool:
        return bool((self.r2 >= LEAST).all())

    def read(self, slots: Float[ndarray, "*batch M D"]) -> Float[ndarray, "*batch M F"]:
        found: ndarray = slots @ self.weight + self.bias
        return found

    def direction(self, name: str) -> Float[ndarray, "D"]:
        row: ndarray = self.change[self.names.index(name)]
        return row

    def slot_direction(self, slot: int, name: str) -> Float[ndarray, "D"]:
        return self.direction(name)


@dataclass(frozen=True)
class SlotProbes:
    """A probe for each of M slots, with the interface of one."""

    probes: tuple[Probe, ...]

    @classmethod
    def fit(
        cls,
        names: Sequence[str],
        slots: Float[ndarray, "n M D"],
        values: Float[ndarray, "n M F"],
    ) -> Self:
        """As `Probe.fit`, slot by slot."""
        some = (slice(m, m + 1) for m in range(slots.shape[1]))
        return cls(tuple(Probe.fit(names, slots[:, m], values[:, m]) for m in some))

    @property
    def names(self) -> tuple[str, ...]:
        return self.probes[0].names

    @property
    def r2(self) -> Float[ndarray, "F"]:
        """Of the slot that is read worst."""
        worst: ndarray = np.min([probe.r2 for probe in self.probes], 0)
        return worst

    @property
    def chance(self) -> Float[ndarray, "F"]:
        """Of the slot with the most."""
        most: ndarray = np.max([probe.chance for probe in self.probes], 0)
        return most

    @property
    def usable(self) -> bool:
        return all(probe.usable for probe in self.probes)

    def read(self, slots: Float[ndarray, "*batch M D"]) -> Float[ndarray, "*batch M F"]:
        return np.stack([probe.read(slots[..., m, :]) for m, probe in enumerate(self.probes)], -2)

    def direction(self, name: str) -> Float[ndarray, "D"]:
        """What raises a feature by 1 in every slot, as well as one change for all of them can."""
        weights = np.concatenate([probe.weight for probe in self.probes], 1)
        wanted = [[other == name for other in self.names] for _ in self.probes]
        found: ndarray = np.linalg.lstsq(weights.T, np.ravel(wanted).astype(float), rcond=None)[0]
        return found

    def slot_direction(self, slot: int, name: str) -> Float[ndarray, "D"]:
        return self.probes[slot].direction(name)


def said(probe: Probe | SlotProbes) -> str:
    """How well it reads, in a sentence."""
    names = ", ".join(
        f"{name} {r2:.2f}" for name, r2 in zip(probe.names, probe.r2.tolist(), strict=True)
    )
    return f"Slots are read by a linear probe; its R² on held-out images: {names}."


def _pairs(slots: ndarray, values: ndarray) -> tuple[ndarray, ndarray]:
    """All slots in a row, without those that have no values."""
    x, y = (part.reshape(-1, part.shape[-1]).astype(np.float64) for part in (slots, values))
    known = np.isfinite(y).all(1)
    return x[known], y[known]


def _solve(x: ndarray, y: ndarray) -> tuple[ndarray, ndarray]:
    """Least squares with a bias; zero without data."""
    if not len(x):
        return np.zeros((x.shape[1], y.shape[1])), np.zeros(y.shape[1])
    middle, mean = x.mean(0), y.mean(0)
    around = x - middle
    weight = np.linalg.lstsq(_spread(around), around.T @ (y - mean) / len(x), rcond=None)[0]
    return weight, mean - middle @ weight


def _spread(around: ndarray) -> ndarray:
    """The covariance of slots, with a little added to what hardly varies."""
    covariance = around.T @ around / max(len(around), 1)
    size = np.trace(covariance) / max(len(covariance), 1)
    return np.asarray(covariance + RIDGE * size * np.eye(len(covariance)))


def _changes(x: ndarray, weight: ndarray) -> ndarray:
    if not len(x):
        return np.zeros(weight.shape[::-1])
    pattern = _spread(x - x.mean(0)) @ weight
    changes: ndarray = np.linalg.pinv(weight.T @ pattern) @ pattern.T
    return changes


def _r2(pairs: tuple[ndarray, ndarray], weight: ndarray, bias: ndarray) -> ndarray:
    """Zero where the values do not vary."""
    x, y = pairs
    if not len(x):
        return np.zeros(y.shape[1])
    left = np.square(y - x @ weight - bias).mean(0)
    total = y.var(0)
    vary = total > STILL**2
    return np.where(vary, 1 - left / np.where(vary, total, 1.0), 0.0)
