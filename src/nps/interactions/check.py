"""What every dense interaction asks of its slots, in the words of the rule layers."""

from __future__ import annotations

from torch import Tensor

from nps.rules.check import require_finite


def check_slots(slots: Tensor, slot_dim: int) -> None:
    """A finite floating point tensor (..., M, D) with at least one slot."""
    if not isinstance(slots, Tensor) or not slots.is_floating_point():
        kind = slots.dtype if isinstance(slots, Tensor) else type(slots).__name__
        raise ValueError(f"slots: got {kind}, expected a floating point tensor")
    if slots.dim() < 2 or slots.shape[-1] != slot_dim:
        raise ValueError(
            f"slots: got shape {tuple(slots.shape)}, expected (..., M, D) with D = {slot_dim}"
        )
    if slots.shape[-2] == 0:
        raise ValueError(f"slots: got shape {tuple(slots.shape)}, expected at least one slot")
    require_finite("slots", slots)
