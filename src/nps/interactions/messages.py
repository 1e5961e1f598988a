"""What every edge of the GNN gets of its two slots, as one function: relu(r_i + s_j), j ≠ i.

In bf16 it runs on a GPU in kernels of our own (messages_kernels.py), which write the P bytes of the
edges once and read their gradients once. Elsewhere it is torch's operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps import kernels
from nps.seeds import KernelGradient, stacked

if TYPE_CHECKING:
    from jaxtyping import Float

WIDEST = 2048
"""Numbers of a row that a program still takes at once."""


def pairs(
    receiver: Float[Tensor, "*batch M H"], sender: Float[Tensor, "*batch M H"]
) -> Float[Tensor, "*batch M M-1 H"]:
    """relu(receiver_i + sender_j) of all j ≠ i."""
    if _has_kernels(receiver):
        result: Tensor = Pairs.apply(receiver, sender)
        return result
    return without_diagonal(receiver.unsqueeze(-2) + sender.unsqueeze(-3)).relu()


def without_diagonal(pairs: Float[Tensor, "*batch M M F"]) -> Float[Tensor, "*batch M M-1 F"]:
    """Row i without its i-th entry, by slicing alone: no index tensor, no scatter in the backward.

    Behind the first entry of the flat table, every (M+1)-th is one of the diagonal.
    """
    m = pairs.shape[-2]
    rest = pairs.flatten(-3, -2)[..., 1:, :].unflatten(-2, (m - 1, m + 1))[..., :-1, :]
    rows: Tensor = rest.flatten(-3, -2).unflatten(-2, (m, m - 1))
    return rows


def _has_kernels(x: Tensor) -> bool:
    fits = x.dtype == torch.bfloat16 and x.shape[-1] <= WIDEST
    return fits and x.numel() > 0 and x.shape[-2] > 1 and kernels.possible(x)


class Pairs(torch.autograd.Function):
    """(receiver, sender) -> pairs, by the kernels; seeds of a stack are nothing but more graphs."""

    @staticmethod
    def forward(receiver: Tensor, sender: Tensor) -> Tensor:
        from nps.interactions import messages_kernels

        return messages_kernels.pairs(receiver, sender)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = PairsGradient.apply(gradient, *ctx.saved_tensors)
        return found

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Tensor) -> tuple[Tensor, int]:
        return Pairs.apply(*stacked(info.batch_size, in_dims, inputs)), 0


class PairsGradient(KernelGradient):
    """(gradient of pairs, receiver, sender) -> gradients of both."""

    @staticmethod
    def forward(*values: Tensor) -> tuple[Tensor, Tensor]:
        from nps.interactions import messages_kernels

        return messages_kernels.pairs_back(*values)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Tensor) -> tuple[Any, Any]:
        return PairsGradient.apply(*stacked(info.batch_size, in_dims, inputs)), (0, 0)
