"""Attention between slots: torch's own modules, with the call of all interaction layers.

This is what the paper's other baselines have between slots (transformers, the attention of RIMs and
SCOFF): every slot reads a mixture of all slots, where NPS binds a single one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from nps.interactions.interaction import check_slots, keep_masked
from nps.rules.check import require_int

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class Attention(nn.Module):
    """slots + MultiheadAttention(slots, slots, slots).

    Args:
        slot_dim: D, size of a slot.
        heads: number of heads; divides D.

    Shapes: slots (..., M, D), slot_mask (..., M) -> (..., M, D).
    """

    def __init__(self, slot_dim: int, *, heads: int = 4) -> None:
        super().__init__()
        _check_sizes(slot_dim, heads)
        self.slot_dim = slot_dim
        self.attention = nn.MultiheadAttention(slot_dim, heads, batch_first=True)

    def forward(
        self,
        slots: Float[Tensor, "*batch M D"],
        *,
        slot_mask: Bool[Tensor, "*batch M"] | None = None,
    ) -> Float[Tensor, "*batch M D"]:
        visible = check_slots(slots, self.slot_dim, slot_mask)
        flat = visible.reshape(-1, *slots.shape[-2:])
        read: Tensor = self.attention(
            flat, flat, flat, key_padding_mask=_ignored(slot_mask), need_weights=False
        )[0]
        return keep_masked(visible + read.reshape(slots.shape), slots, slot_mask)

    def weights(
        self,
        slots: Float[Tensor, "*batch M D"],
        *,
        slot_mask: Bool[Tensor, "*batch M"] | None = None,
    ) -> Float[Tensor, "*batch M M"]:
        """How much each slot reads of each, the mean of all heads; of and by masked slots, 0."""
        visible = check_slots(slots, self.slot_dim, slot_mask)
        flat = visible.reshape(-1, *slots.shape[-2:])
        weights: Tensor = self.attention(flat, flat, flat, key_padding_mask=_ignored(slot_mask))[1]
        weights = weights.reshape(*slots.shape[:-1], slots.shape[-2])
        if slot_mask is None:
            return weights
        return weights * (slot_mask.unsqueeze(-1) & slot_mask.unsqueeze(-2))


class TransformerLayer(nn.Module):
    """One transformer layer over the slots: attention and an MLP, both residual, norm first.

    Args:
        slot_dim: D, size of a slot.
        heads: number of heads; divides D.
        hidden_dim: hidden units of the MLP (default: those of a rule).

    Shapes: slots (..., M, D), slot_mask (..., M) -> (..., M, D).
    """

    def __init__(self, slot_dim: int, *, heads: int = 4, hidden_dim: int = 128) -> None:
        super().__init__()
        _check_sizes(slot_dim, heads)
        require_int("hidden_dim", hidden_dim, at_least=1)
        self.slot_dim = slot_dim
        self.layer = nn.TransformerEncoderLayer(
            slot_dim, heads, hidden_dim, dropout=0.0, norm_first=True, batch_first=True
        )

    def forward(
        self,
        slots: Float[Tensor, "*batch M D"],
        *,
        slot_mask: Bool[Tensor, "*batch M"] | None = None,
    ) -> Float[Tensor, "*batch M D"]:
        visible = check_slots(slots, self.slot_dim, slot_mask)
        flat = visible.reshape(-1, *slots.shape[-2:])
        new: Tensor = self.layer(flat, src_key_padding_mask=_ignored(slot_mask))
        return keep_masked(new.reshape(slots.shape), slots, slot_mask)


def _ignored(slot_mask: Bool[Tensor, "*batch M"] | None) -> Bool[Tensor, "B M"] | None:
    """torch's padding mask: True where a slot is not read.

    If all slots are masked, all are read: a softmax over nothing is NaN, and so is its gradient.
    The result is discarded in that case.
    """
    if slot_mask is None:
        return None
    ignored = ~slot_mask & slot_mask.any(-1, keepdim=True)
    return ignored.reshape(-1, slot_mask.shape[-1])


def _check_sizes(slot_dim: int, heads: int) -> None:
    require_int("slot_dim", slot_dim, at_least=1)
    require_int("heads", heads, at_least=1)
    if slot_dim % heads:
        raise ValueError(f"heads: got {heads}, expected a divisor of slot_dim = {slot_dim}")
