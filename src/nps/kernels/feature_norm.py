"""Layer normalisation without parameters of the features of all pixels, with their position added.

The fast form (float32 or bf16 on a GPU) reads and writes the features once: it takes many short
rows at a time, and adds the position embedding on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.kernels.stacks import seeds_first

if TYPE_CHECKING:
    from jaxtyping import Float

EPSILON = 1e-5
"""The default of torch's layer normalisation."""
MAX_SIZE = 128
"""Longest feature that a program holds in registers."""


def normalise_features(
    x: Float[Tensor, "B n F"], added: Float[Tensor, "n F"] | None = None
) -> Float[Tensor, "B n F"]:
    """Normalise each feature, after adding what belongs to its place, if anything."""
    if supported(x):
        normal: Tensor = FeatureNorm.apply(x, added)[0]
        return normal
    with torch.autocast(x.device.type, enabled=False):  # which would double the memory
        x = x if added is None else x + added.to(x.dtype)
        return F.layer_norm(x, x.shape[-1:], eps=EPSILON)


def supported(x: Float[Tensor, "B n F"]) -> bool:
    fits = x.shape[-1] <= MAX_SIZE and x.dtype in (torch.float32, torch.bfloat16)
    return fits and kernels.available("feature_norm", x)


class FeatureNorm(torch.autograd.Function):
    """(x, added) -> (normalised features, factor of each), by the kernels."""

    @staticmethod
    def forward(x: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
        from nps.kernels.triton import feature_norm as programs

        added = None if added is None else added.contiguous()
        return programs.forward(x.contiguous(), added, EPSILON)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        added = inputs[1]
        ctx.added = None if added is None else (added.dim(), added.dtype)
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor | None]:
        from nps.kernels.triton import feature_norm as programs

        to_x = programs.backward(gradient.contiguous(), *ctx.saved_tensors)
        if ctx.added is None:
            return to_x, None
        dims, dtype = ctx.added  # summed over all images, or over those of each seed
        return to_x, to_x.flatten(dims - 2, -3).sum(dims - 2, dtype=torch.float32).to(dtype)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        return FeatureNorm.apply(*seeds_first(info.batch_size, in_dims, inputs)), (0, 0)
