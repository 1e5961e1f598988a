"""Shared by functions with their own vmap rule: the seeds of a stack as the leading dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def seeds_first(seeds: int, dims: Sequence[int | None], values: Sequence[Any]) -> list[Any]:
    """Move the mapped dimension of each tensor to the front; expand tensors that seeds share."""
    return [
        x if x is None else x.expand(seeds, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(values, dims, strict=True)
    ]


def one_seed_dim(values: Sequence[Tensor], per_channel: Tensor) -> list[Tensor]:
    """Give every tensor exactly one leading dimension of seeds.

    Nested vmaps leave several, no vmap leaves none. In a tensor with one number per
    channel, all dimensions but the last are seeds.
    """
    seed_dims = per_channel.dim() - 1
    return [v.reshape(-1, *v.shape[seed_dims:]) for v in values]


class KernelGradient(torch.autograd.Function):
    """Base of gradients computed by kernels, which need a vmap rule of their own.

    Kernels have no second derivatives. An error says so; otherwise they would seem to be zero.
    """

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise NotImplementedError("this function has no second derivatives on CUDA")
