"""The convolutional interaction network that NPS replaces in Shapes stack: RPIN's (Qi et al. 2021).

Slots are feature maps, and every one of them is influenced by every other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nps.rules.check import require_int, require_slots
from nps.rules.slots import unsqueeze_right

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class CIN(nn.Module):
    r"""RPIN's interaction between feature maps:

    .. math::
        e_i &= \mathrm{ReLU}(f_{self}(V_i)) +
            \textstyle\sum_{j \neq i} \mathrm{ReLU}(f_{rel}([V_i, V_j])) \\
        V_i &\leftarrow \mathrm{ReLU}(f_{out}([\mathrm{ReLU}(f_{all}(e_i)), V_i]))

    All f are 3 × 3 convolutions. :math:`f_{rel}` need not be computed for every pair: it is a sum
    of a convolution of V_i and one of V_j. Both and :math:`f_{self}` are one convolution, `weight`.
    Unlike other layers, it is not residual.

    Args:
        slot_dim: C, channels of a slot.

    Shapes: slots (..., M, C, H, W), slot_mask (..., M) -> (..., M, C, H, W).
    """

    def __init__(self, slot_dim: int) -> None:
        super().__init__()
        require_int("slot_dim", slot_dim, at_least=1)
        self.slot_dim = slot_dim
        alone = nn.Conv2d(slot_dim, slot_dim, 3)
        relation = nn.Conv2d(2 * slot_dim, slot_dim, 3)
        each = [alone.weight, *relation.weight.chunk(2, 1)]
        self.weight = nn.Parameter(torch.cat(each).detach())
        self.bias = nn.Parameter(torch.cat([alone.bias, relation.bias]).detach())  # type: ignore[list-item]
        self.all = nn.Conv2d(slot_dim, slot_dim, 3, padding=1)
        self.out = nn.Conv2d(2 * slot_dim, slot_dim, 3, padding=1)

    def forward(
        self,
        slots: Float[Tensor, "*batch M C H W"],
        *,
        slot_mask: Bool[Tensor, "*batch M"] | None = None,
    ) -> Float[Tensor, "*batch M C H W"]:
        require_slots(slots, slot_mask, self.slot_dim, 3)
        batch, m = slots.shape[:-4], slots.shape[-4]
        given = slots
        if slot_mask is not None:
            slots = torch.where(unsqueeze_right(slot_mask, 3), slots, 0.0)
        x = slots.flatten(0, len(batch)) if batch else slots
        bias = nn.functional.pad(self.bias, (0, self.slot_dim))
        said = nn.functional.conv2d(x, self.weight, bias, padding=1).chunk(3, 1)
        alone, primary, context = (part.unflatten(0, (-1, m)) for part in said)
        pairs = primary.unsqueeze(2) + context.unsqueeze(1)
        counts = ~torch.eye(m, dtype=torch.bool, device=x.device)
        if slot_mask is not None:
            counts = counts & slot_mask.reshape(-1, 1, m)
        between = (pairs.relu() * counts[..., None, None, None]).sum(2)
        influence = self.all((alone.relu() + between).flatten(0, 1)).relu()
        new: Tensor = self.out(torch.cat([influence, x.to(influence.dtype)], 1)).relu()
        new = new.reshape(*batch, m, *new.shape[1:])
        return new if slot_mask is None else torch.where(unsqueeze_right(slot_mask, 3), new, given)
