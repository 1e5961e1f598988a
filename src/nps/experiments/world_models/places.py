"""Where slots are in the picture, as far as where they look says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

SAME = 0.01
"""Share of the picture's sides up to which two places are the same."""


def told_apart(places: Float[ndarray, "n M 2"]) -> Float[ndarray, "n M 2"]:
    """NaN for slots at the place of another one: their maps do not show what each looks at."""
    apart = np.abs(places[:, :, None] - places[:, None]).max(-1)
    shared = (apart < SAME).sum(-1) > 1  # each slot is at its own place
    return np.where(shared[..., None], np.nan, places)


def if_any(places: Float[ndarray, "n M 2"]) -> Float[ndarray, "n M 2"] | None:
    """The places; None if none is known."""
    return places if np.isfinite(places).any() else None
