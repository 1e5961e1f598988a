"""What can be read of the slots of models of video (balls, sprites): place and velocity where slots
have them (perception/places.py), else the middle of what a slot draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nps.inspect.grids import to_bytes
from nps.perception.places import FASTEST, PLACE, in_radii

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8
    from numpy import ndarray

READABLE = ("column", "row", "velocity across", "velocity down")
"""The first numbers of a slot with a place, as shares of the picture's side; velocities are ways
of a frame."""
SCALE = np.array([0.5, 0.5, 0.5 * FASTEST, 0.5 * FASTEST])
OFFSET = np.array([0.5, 0.5, 0.0, 0.0])
"""From a slot's numbers to these."""
FAINT = 4.0
"""Pixels that a slot has to draw to have a place, where slots have none of their own."""


def readable(slots: Float[ndarray, "*batch D"]) -> Float[ndarray, "*batch 4"]:
    """Of slots with a place."""
    found: ndarray = OFFSET + SCALE * slots[..., : 2 * PLACE]
    return found


def unit(index: int, slot_dim: int, *, placed: bool) -> Float[ndarray, "D"]:
    """The change of a slot that raises one of `READABLE`, or one of its numbers, by 1."""
    along: ndarray = np.eye(slot_dim)[index]
    return along / SCALE[index] if placed else along


def rescaled(slots: Float[ndarray, "*batch D"], radius: float) -> Float[ndarray, "*batch D"]:
    """Place and velocity in other units, as `in_radii`."""
    found: ndarray = in_radii(torch.from_numpy(np.asarray(slots)), radius).numpy()
    return found


def own_places(slots: Float[ndarray, "*batch D"]) -> Float[ndarray, "*batch 2"]:
    """Row and column of slots with a place."""
    found: ndarray = readable(slots)[..., 1::-1].clip(0.0, 1.0)
    return found


def middles(masks: Float[ndarray, "M H W"]) -> Float[ndarray, "M 2"]:
    """Row and column of the middle of what each slot draws; NaN if it draws hardly anything."""
    along = (np.arange(masks.shape[-1]) + 0.5) / masks.shape[-1]
    ink = np.where(masks > 0.5, masks, 0.0)
    area = ink.sum((1, 2))
    whole = np.maximum(area, FAINT)
    places = np.stack([ink.sum(2) @ along / whole, ink.sum(1) @ along / whole], -1)
    return np.where((area >= FAINT)[:, None], places, np.nan)


def as_bytes(image: Float[Tensor, "3 H W"]) -> UInt8[ndarray, "H W 3"]:
    return to_bytes(image.movedim(0, -1).cpu().numpy())
