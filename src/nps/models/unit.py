"""Vectors of length 1, with a gradient in few operations: `F.normalize` takes three times as many,
and in a roll-out each of them counts frame by frame."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

TINY = 1e-24
"""Smallest square of a length; shorter vectors are shrunk less."""


def unit(x: Tensor, dim: int) -> Tensor:
    """x / |x| along a dimension, in at least float32; 0 stays 0."""
    result: Tensor = Unit.apply(x, dim)
    return result


class Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        inverse = wide.square().sum(dim, keepdim=True).clamp(min=TINY).rsqrt()
        result = wide * inverse
        ctx.save_for_backward(result, inverse)
        ctx.dim, ctx.dtype = dim, x.dtype
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        result, inverse = ctx.saved_tensors
        along = (gradient * result).sum(ctx.dim, keepdim=True)
        return ((gradient - along * result) * inverse).to(ctx.dtype), None
