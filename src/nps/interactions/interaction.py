"""The call that every interaction layer shares, and its checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from nps.rules.check import require_finite, require_slots

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class Interaction(Protocol):
    """A layer between slots: `layer(slots)`, `layer(slots, slot_mask=mask)`.

    Rule layers and dense layers alike are an `Interaction`, for any number of slots and leading
    dimensions. Some take more: rule layers `selection`, `noise` and `return_trace`, the GNN an
    `action` for each slot. Their signatures say so.
    """

    def __call__(
        self,
        slots: Float[Tensor, "*batch M D"],
        *,
        slot_mask: Bool[Tensor, "*batch M"] | None = None,
    ) -> Float[Tensor, "*batch M D"]:
        """The new slots.

        Where `slot_mask` is False, a slot is returned unchanged and has no effect on the others,
        whatever its values.
        """
        ...


def check_slots(slots: Tensor, slot_dim: int, slot_mask: Tensor | None = None) -> Tensor:
    """Check the input of a dense layer; returns the slots, with zeros where they are masked."""
    require_slots(slots, slot_mask, slot_dim, 1)
    if slot_mask is not None:
        slots = slots.masked_fill(~slot_mask.unsqueeze(-1), 0.0)
    require_finite("slots", slots)
    return slots


def keep_masked(new: Tensor, slots: Tensor, slot_mask: Tensor | None) -> Tensor:
    """The new slots, except that masked ones stay as they were."""
    return new if slot_mask is None else torch.where(slot_mask.unsqueeze(-1), new, slots)
