"""Attention between slots: torch's own, behind the call of the rule layers.

What the paper's other baselines put between slots (transformers, the attention of RIMs and SCOFF):
every slot reads a mixture of all slots, where NPS binds a single one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from nps.interactions.check import check_slots
from nps.rules.check import require_int

if TYPE_CHECKING:
    from jaxtyping import Float


class Attention(nn.Module):
    """slots + MultiheadAttention(slots, slots, slots).

    Args:
        slot_dim: D, size of a slot.
        heads: number of heads; divides D.

    Shapes: slots (..., M, D) -> (..., M, D).
    """

    def __init__(self, slot_dim: int, *, heads: int = 4) -> None:
        super().__init__()
        _check_sizes(slot_dim, heads)
        self.slot_dim = slot_dim
        self.attention = nn.MultiheadAttention(slot_dim, heads, batch_first=True)

    def forward(self, slots: Float[Tensor, "*batch M D"]) -> Float[Tensor, "*batch M D"]:
        check_slots(slots, self.slot_dim)
        flat = slots.reshape(-1, *slots.shape[-2:])
        heard: Tensor = self.attention(flat, flat, flat, need_weights=False)[0]
        return slots + heard.reshape(slots.shape)


class TransformerLayer(nn.Module):
    """One transformer layer over the slots: attention and an MLP, both residual, norm first.

    Args:
        slot_dim: D, size of a slot.
        heads: number of heads; divides D.
        hidden_dim: of the MLP (that of a rule by default).

    Shapes: slots (..., M, D) -> (..., M, D).
    """

    def __init__(self, slot_dim: int, *, heads: int = 4, hidden_dim: int = 128) -> None:
        super().__init__()
        _check_sizes(slot_dim, heads)
        require_int("hidden_dim", hidden_dim, at_least=1)
        self.slot_dim = slot_dim
        self.layer = nn.TransformerEncoderLayer(
            slot_dim, heads, hidden_dim, dropout=0.0, norm_first=True, batch_first=True
        )

    def forward(self, slots: Float[Tensor, "*batch M D"]) -> Float[Tensor, "*batch M D"]:
        check_slots(slots, self.slot_dim)
        new: Tensor = self.layer(slots.reshape(-1, *slots.shape[-2:]))
        return new.reshape(slots.shape)


def _check_sizes(slot_dim: int, heads: int) -> None:
    require_int("slot_dim", slot_dim, at_least=1)
    require_int("heads", heads, at_least=1)
    if slot_dim % heads:
        raise ValueError(f"heads: got {heads}, expected a divisor of slot_dim = {slot_dim}")
