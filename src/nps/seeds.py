"""What functions with a rule for vmap share: the seeds of a stack as a first dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def stacked(seeds: int, dims: Sequence[int | None], values: Sequence[Any]) -> list[Any]:
    """What is mapped over has the seeds first; what is shared, too, without a copy."""
    return [
        x if x is None else x.expand(seeds, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(values, dims, strict=True)
    ]


def with_one_dimension(values: Sequence[Tensor], of_channels: Tensor) -> list[Tensor]:
    """One dimension for the seeds in front, of as many as `of_channels` has beyond its own."""
    seeds = of_channels.dim() - 1
    return [v.reshape(-1, *v.shape[seeds:]) for v in values]


class KernelGradient(torch.autograd.Function):
    """A gradient by kernels, with a rule for vmap of its own; kernels have no second derivatives.

    To say so is better than the zero that they would seem to have.
    """

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise NotImplementedError("this function has no second derivatives on CUDA")
