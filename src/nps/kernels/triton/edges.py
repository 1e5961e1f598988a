"""Inputs of the GNN's edges (nps/kernels/edges.py) in Triton.

A program takes one graph, whose slots stay in the cache while its edges are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from nps.kernels.triton.common import power_of_2

if TYPE_CHECKING:
    from jaxtyping import Float


@triton.jit
def _sum_of(receiver, sender, i, j, c, H: tl.constexpr):
    """receiver_i + sender_j of this graph."""
    r = tl.load(receiver + i * H + c, mask=c < H, other=0.0).to(tl.float32)
    return r + tl.load(sender + j * H + c, mask=c < H, other=0.0).to(tl.float32)


@triton.jit
def _forward(receiver, sender, result, M: tl.constexpr, H: tl.constexpr, HP: tl.constexpr):
    """All edges of one graph."""
    graph, c = tl.program_id(0).to(tl.int64), tl.arange(0, HP)
    receiver += graph * M * H
    sender += graph * M * H
    result += graph * M * (M - 1) * H
    for edge in range(M * (M - 1)):
        i, p = edge // (M - 1), edge % (M - 1)
        j = tl.where(p >= i, p + 1, p)
        value = tl.maximum(_sum_of(receiver, sender, i, j, c, H), 0.0)
        tl.store(result + edge * H + c, value.to(result.dtype.element_ty), mask=c < H)


@triton.jit
def _before_relu(gradient, receiver, sender, i, j, c, M: tl.constexpr, H: tl.constexpr):
    """The gradient of edge ij before its ReLU, whose sign is recomputed."""
    p = tl.where(j > i, j - 1, j)
    g = tl.load(gradient + (i * (M - 1) + p) * H + c, mask=c < H, other=0.0).to(tl.float32)
    return tl.where(_sum_of(receiver, sender, i, j, c, H) > 0, g, 0.0)


@triton.jit
def _backward(
    gradient, receiver, sender, to_receiver, to_sender,
    M: tl.constexpr, H: tl.constexpr, HP: tl.constexpr,
):  # fmt: skip
    """One graph. Each gradient is used twice; the second time it comes from the cache."""
    graph, c = tl.program_id(0).to(tl.int64), tl.arange(0, HP)
    receiver += graph * M * H
    sender += graph * M * H
    gradient += graph * M * (M - 1) * H
    for m in range(M):
        received = tl.zeros((HP,), tl.float32)
        sent = tl.zeros((HP,), tl.float32)
        for p in range(M - 1):
            other = tl.where(p >= m, p + 1, p)
            received += _before_relu(gradient, receiver, sender, m, other, c, M, H)
            sent += _before_relu(gradient, receiver, sender, other, m, c, M, H)
        at = (graph * M + m) * H + c
        tl.store(to_receiver + at, received.to(to_receiver.dtype.element_ty), mask=c < H)
        tl.store(to_sender + at, sent.to(to_sender.dtype.element_ty), mask=c < H)


def forward(
    receiver: Float[Tensor, "*batch M H"], sender: Float[Tensor, "*batch M H"]
) -> Float[Tensor, "*batch M M-1 H"]:
    receiver, sender = receiver.contiguous(), sender.contiguous()
    *batch, m, width = receiver.shape
    result = receiver.new_empty(*batch, m, m - 1, width)
    _forward[_graphs(receiver)](receiver, sender, result, m, **_width(receiver))
    return result


def backward(
    gradient: Float[Tensor, "*batch M M-1 H"],
    receiver: Float[Tensor, "*batch M H"],
    sender: Float[Tensor, "*batch M H"],
) -> tuple[Float[Tensor, "*batch M H"], Float[Tensor, "*batch M H"]]:
    gradient, receiver, sender = (v.contiguous() for v in (gradient, receiver, sender))
    to_receiver, to_sender = torch.empty_like(receiver), torch.empty_like(sender)
    _backward[_graphs(receiver)](
        gradient, receiver, sender, to_receiver, to_sender,
        receiver.shape[-2], **_width(receiver),
    )  # fmt: skip
    return to_receiver, to_sender


def _graphs(receiver: Tensor) -> tuple[int]:
    return (receiver.shape[:-2].numel(),)


def _width(x: Tensor) -> dict[str, int]:
    return {"H": x.shape[-1], "HP": power_of_2(x.shape[-1])}
