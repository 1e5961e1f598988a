"""The input of every edge of the GNN, as one function: relu(receiver_i + sender_j) for all j ≠ i.

The fast form (bf16 on a GPU) writes the edges once and reads their gradient once; torch's
operations go over them several times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps import kernels
from nps.kernels.stacks import KernelGradient, seeds_first

if TYPE_CHECKING:
    from jaxtyping import Float

MAX_WIDTH = 2048
"""Widest row that a program holds in registers."""


def edge_inputs(
    receiver: Float[Tensor, "*batch M H"], sender: Float[Tensor, "*batch M H"]
) -> Float[Tensor, "*batch M M-1 H"]:
    """relu(receiver_i + sender_j) for all j ≠ i."""
    if supported(receiver):
        edges: Tensor = EdgeInputs.apply(receiver, sender)
        return edges
    return without_diagonal(receiver.unsqueeze(-2) + sender.unsqueeze(-3)).relu()


def without_diagonal(pairs: Float[Tensor, "*batch M M F"]) -> Float[Tensor, "*batch M M-1 F"]:
    """Row i without its i-th entry, by slicing: no index tensor, and no scatter in the backward.

    After the first entry of the flat table, every (M+1)-th one is on the diagonal.
    """
    m = pairs.shape[-2]
    rest = pairs.flatten(-3, -2)[..., 1:, :].unflatten(-2, (m - 1, m + 1))[..., :-1, :]
    rows: Tensor = rest.flatten(-3, -2).unflatten(-2, (m, m - 1))
    return rows


def supported(x: Float[Tensor, "*batch M H"]) -> bool:
    fits = x.dtype == torch.bfloat16 and x.shape[-1] <= MAX_WIDTH
    return fits and x.numel() > 0 and x.shape[-2] > 1 and kernels.available("edges", x)


class EdgeInputs(torch.autograd.Function):
    """(receiver, sender) -> edges, by the kernels; the seeds of a stack are simply more graphs."""

    @staticmethod
    def forward(receiver: Tensor, sender: Tensor) -> Tensor:
        from nps.kernels.triton import edges

        return edges.forward(receiver, sender)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        gradients: tuple[Tensor, Tensor] = EdgeGradient.apply(gradient, *ctx.saved_tensors)
        return gradients

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Tensor) -> tuple[Tensor, int]:
        return EdgeInputs.apply(*seeds_first(info.batch_size, in_dims, inputs)), 0


class EdgeGradient(KernelGradient):
    """(gradient of the edges, receiver, sender) -> gradients of receiver and sender."""

    @staticmethod
    def forward(*values: Tensor) -> tuple[Tensor, Tensor]:
        from nps.kernels.triton import edges

        return edges.backward(*values)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Tensor) -> tuple[Any, Any]:
        return EdgeGradient.apply(*seeds_first(info.batch_size, in_dims, inputs)), (0, 0)
