"""The graph neural network that NPS replaces in world models: the transition of C-SWM.

Every slot receives a message from every other one. Kipf et al., "Contrastive Learning of Structured
World Models" (2020), is the baseline of the paper's sections on world models (blocks, Atari). It is
dense: M·(M-1) edges, each through an MLP of width 512, where a stage of NPS runs one rule on one
pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.interactions.interaction import check_slots, keep_masked
from nps.networks import NormalisedMLP, linear
from nps.rules.check import require_finite, require_int, require_type

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class GNN(nn.Module):
    r"""One round of messages between all pairs of slots, then a residual update:

    .. math::
        e_{ij} &= f_{edge}([V_i, V_j]), \qquad i \neq j \\
        V_i &\leftarrow V_i + f_{node}([V_i, a_i, \textstyle\sum_j e_{ij}])

    Both networks are Linear, ReLU, Linear, LayerNorm, ReLU, Linear. The first and last layers of
    the edges' network need not be computed for every edge: W [V_i, V_j] is a sum of two products on
    slots, and a sum of messages W h_ij + b is one product with the sum of h_ij. Only the middle
    layer remains on the edges: the same function up to rounding, in half the time.

    Args:
        slot_dim: D, size of a slot.
        hidden_dim: width of both networks and size of a message (C-SWM: 512).
        action_dim: A, size of the action given to each slot; 0 without actions.
        lean: compute the outer layers on slots; False computes them on edges, as C-SWM does.

    Shapes: slots (..., M, D), action (..., M, A), slot_mask (..., M) -> (..., M, D).
    """

    def __init__(
        self, slot_dim: int, *, hidden_dim: int = 512, action_dim: int = 0, lean: bool = True
    ) -> None:
        super().__init__()
        require_int("slot_dim", slot_dim, at_least=1)
        require_int("hidden_dim", hidden_dim, at_least=1)
        require_int("action_dim", action_dim, at_least=0)
        require_type("lean", lean, bool, "True or False")
        self.slot_dim = slot_dim
        self.hidden_dim = hidden_dim
        self.action_dim = action_dim
        self.lean = lean
        self.edge = NormalisedMLP(2 * slot_dim, hidden_dim, hidden_dim)
        self.node = NormalisedMLP(slot_dim + action_dim + hidden_dim, hidden_dim, slot_dim)

    def extra_repr(self) -> str:
        return f"{self.slot_dim}, hidden_dim={self.hidden_dim}, action_dim={self.action_dim}"

    def forward(
        self,
        slots: Float[Tensor, "*batch M D"],
        action: Float[Tensor, "*batch M A"] | None = None,
        *,
        slot_mask: Bool[Tensor, "*batch M"] | None = None,
    ) -> Float[Tensor, "*batch M D"]:
        visible = check_slots(slots, self.slot_dim, slot_mask)
        self._check_action(action, visible)
        if self.lean and slot_mask is None:
            messages = self._lean_messages(visible)
        else:
            messages = self._messages(visible, slot_mask)
        inputs = [visible, messages] if action is None else [visible, action, messages]
        change: Tensor = self.node(torch.cat([x.to(messages.dtype) for x in inputs], -1))
        return keep_masked(visible + change, slots, slot_mask)

    def _messages(
        self, slots: Float[Tensor, "*batch M D"], slot_mask: Bool[Tensor, "*batch M"] | None
    ) -> Float[Tensor, "*batch M H"]:
        pairs = torch.broadcast_tensors(slots.unsqueeze(-2), slots.unsqueeze(-3))
        messages: Tensor = self.edge(without_diagonal(torch.cat(pairs, -1)))
        if slot_mask is not None:
            m = slots.shape[-2]
            sends = slot_mask[..., None, :, None].expand(*slot_mask.shape[:-1], m, m, 1)
            messages = messages * without_diagonal(sends)
        return messages.sum(-2)

    def _lean_messages(self, slots: Float[Tensor, "*batch M D"]) -> Float[Tensor, "*batch M H"]:
        layers: Any = self.edge  # the type of a Sequential does not say what its layers are
        first, _, middle, _, _, last = layers
        of_receiver, of_sender = first.weight.split(self.slot_dim, -1)
        receiver, sender = linear(slots, of_receiver, first.bias), F.linear(slots, of_sender)
        edges = without_diagonal(receiver.unsqueeze(-2) + sender.unsqueeze(-3)).relu()
        hidden = self.edge.norm_relu_sum(middle(edges))
        return linear(hidden, last.weight, (slots.shape[-2] - 1) * last.bias)

    def _check_action(self, action: Tensor | None, slots: Tensor) -> None:
        if action is None:
            if self.action_dim:
                raise ValueError(f"action: got None, expected (..., M, {self.action_dim})")
            return
        require_type("action", action, Tensor, "a tensor")
        expected = (*slots.shape[:-1], self.action_dim)
        if not self.action_dim or tuple(action.shape) != expected:
            what = expected if self.action_dim else "none (action_dim = 0)"
            raise ValueError(f"action: got shape {tuple(action.shape)}, expected {what}")
        if action.dtype != slots.dtype:
            raise ValueError(f"action: got {action.dtype}, expected {slots.dtype} as the slots")
        require_finite("action", action)


def without_diagonal(pairs: Float[Tensor, "*batch M M F"]) -> Float[Tensor, "*batch M M-1 F"]:
    """Row i without its i-th entry, by slicing: no index tensor, no scatter in the backward pass.

    After the first entry of the flat table, every (M+1)-th one is on the diagonal.
    """
    m = pairs.shape[-2]
    rest = pairs.flatten(-3, -2)[..., 1:, :].unflatten(-2, (m - 1, m + 1))[..., :-1, :]
    rows: Tensor = rest.flatten(-3, -2).unflatten(-2, (m, m - 1))
    return rows
