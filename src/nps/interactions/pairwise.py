"""The interaction network of OP3 (Veerapaneni et al. 2019), which NPS replaces on Sprites-MOT.

Every slot is influenced by every other one; how much, a second network says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.interactions.gnn import without_diagonal
from nps.interactions.interaction import check_slots, keep_masked
from nps.rules.check import require_int

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class Pairwise(nn.Module):
    r"""OP3's effects of slots on one another:

    .. math::
        p_{ij} &= f_{pair}([V_i, V_j]), \qquad i \neq j \\
        V_i &\leftarrow f_{merge}([V_i, \textstyle\sum_j \sigma(f_{attention}(p_{ij}))\,
            f_{effect}(p_{ij})])

    All f have one hidden layer, and ELU behind both layers, but for the attention. The first layer
    of :math:`f_{pair}` is a sum of two products on slots. Not residual.

    Args:
        slot_dim: D, size of a slot.
        effect_dim: size of an effect (OP3: 32).

    Shapes: slots (..., M, D), slot_mask (..., M) -> (..., M, D).
    """

    def __init__(self, slot_dim: int, *, effect_dim: int = 32) -> None:
        super().__init__()
        require_int("slot_dim", slot_dim, at_least=1)
        require_int("effect_dim", effect_dim, at_least=1)
        self.slot_dim, self.effect_dim = slot_dim, effect_dim
        self.pair_in = nn.Linear(2 * slot_dim, 2 * slot_dim)
        self.pair_out = nn.Linear(2 * slot_dim, slot_dim)
        self.effect = elu_mlp(slot_dim, slot_dim, effect_dim)
        self.attention = nn.Sequential(
            nn.Linear(slot_dim, slot_dim), nn.ELU(), nn.Linear(slot_dim, 1), nn.Sigmoid()
        )
        self.merge = elu_mlp(slot_dim + effect_dim, slot_dim, slot_dim)

    def extra_repr(self) -> str:
        return f"{self.slot_dim}, effect_dim={self.effect_dim}"

    def forward(
        self,
        slots: Float[Tensor, "*batch M D"],
        *,
        slot_mask: Bool[Tensor, "*batch M"] | None = None,
    ) -> Float[Tensor, "*batch M D"]:
        visible = check_slots(slots, self.slot_dim, slot_mask)
        of_receiver, of_sender = self.pair_in.weight.split(self.slot_dim, -1)
        receiver = F.linear(visible, of_receiver, self.pair_in.bias)
        sender = F.linear(visible, of_sender)
        pairs = F.elu(without_diagonal(receiver.unsqueeze(-2) + sender.unsqueeze(-3)))
        pairs = F.elu(self.pair_out(pairs))
        effects = self.attention(pairs) * self.effect(pairs)
        if slot_mask is not None:
            m = slots.shape[-2]
            sends = slot_mask[..., None, :, None].expand(*slot_mask.shape[:-1], m, m, 1)
            effects = effects * without_diagonal(sends)
        total = effects.sum(-2)
        new: Tensor = self.merge(torch.cat([visible.to(total.dtype), total], -1))
        return keep_masked(new, slots, slot_mask)


def elu_mlp(size_in: int, hidden_dim: int, size_out: int) -> nn.Sequential:
    """One hidden layer, and ELU behind both layers."""
    return nn.Sequential(
        nn.Linear(size_in, hidden_dim), nn.ELU(), nn.Linear(hidden_dim, size_out), nn.ELU()
    )
