"""Layer normalisation, ReLU and a sum over rows, as one function.

    t = Σ_p relu(norm(x_p) · weight + bias)

It stands between two products in C-SWM's networks, with one row to a sum, and on the edges of its
GNN with as many as there are senders. In bf16 products are fast, and what autocast makes of the
rest, in float32 and operation by operation, takes longer than they do. On a GPU it runs in kernels
of our own then (normalised_kernels.py), which are bound by memory: they read the P bytes of x once
forward, and read and write them once backward. Elsewhere it is torch's operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.seeds import KernelGradient, stacked, with_one_dimension

if TYPE_CHECKING:
    from jaxtyping import Float

WIDEST = 2048
"""Numbers of a row that a program still takes at once."""


def normalised_sum(
    x: Float[Tensor, "*batch P H"],
    weight: Float[Tensor, "H"],
    bias: Float[Tensor, "H"],
    epsilon: float = 1e-5,
) -> Float[Tensor, "*batch H"]:
    """The sum over P of normalised rows, each after its ReLU."""
    if _has_kernels(x):
        result: Tensor = NormalisedSum.apply(epsilon, x, weight, bias)
        return result
    rows = F.layer_norm(x, x.shape[-1:], weight, bias, epsilon).relu()
    return rows.squeeze(-2) if x.shape[-2] == 1 else rows.sum(-2)


def _has_kernels(x: Tensor) -> bool:
    fits = x.dtype == torch.bfloat16 and x.shape[-1] <= WIDEST
    return fits and x.numel() > 0 and kernels.possible(x)


class NormalisedSum(torch.autograd.Function):
    """(epsilon, x, weight, bias) -> the sums, by the kernels.

    Dimensions for seeds may stand in front of all of them: as many as the weight has beyond one.
    """

    @staticmethod
    def forward(epsilon: float, *values: Tensor) -> Tensor:
        from nps.networks import normalised_kernels

        x, weight = values[:2]
        found = normalised_kernels.forward(*with_one_dimension(values, weight), epsilon=epsilon)
        return found.reshape(*x.shape[:-2], x.shape[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.epsilon, *values = inputs
        ctx.save_for_backward(*values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *Gradient.apply(ctx.epsilon, gradient, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: Any, epsilon: float, *values: Tensor) -> tuple[Tensor, int]:
        return NormalisedSum.apply(epsilon, *stacked(info.batch_size, in_dims[1:], values)), 0


class Gradient(KernelGradient):
    """(epsilon, gradient of the sums, x, weight, bias) -> gradients of x, weight and bias."""

    @staticmethod
    def forward(epsilon: float, *values: Tensor) -> tuple[Tensor, ...]:
        from nps.networks import normalised_kernels

        one = with_one_dimension(values, values[2])
        found = normalised_kernels.backward(*one, epsilon=epsilon)
        return tuple(
            v.reshape(of.shape).to(of.dtype) for v, of in zip(found, values[1:], strict=True)
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, epsilon: float, *values: Tensor) -> tuple[Any, Any]:
        return Gradient.apply(epsilon, *stacked(info.batch_size, in_dims[1:], values)), (0,) * 3
