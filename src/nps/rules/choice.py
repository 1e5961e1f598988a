"""The hard, differentiable choice (paper, section 3.1, steps 2 and 3).

Forward: the one-hot argmax of the scores plus Gumbel noise. Backward: the gradient of the softmax
(straight-through; Jang et al., 2016). `torch.nn.functional.gumbel_softmax` takes no generator,
overflows in half precision and draws different noise when compiled, so this is our own: it works
in float32 at least, and its randomness comes in as uniform numbers that the caller owns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

# Allowed scores stay above those that are not, and both remain finite after a division by the
# smallest temperature. FAR replaces infinities, two of which could meet and give NaN.
LOWEST_ALLOWED = -1e20
NOT_ALLOWED = -1e25
FAR = 1e32


def gumbel(uniform: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Gumbel(0, 1) noise from uniform numbers in [0, 1)."""
    # float32's open interval: log(0) at either end would be infinite.
    inside = uniform.float().clamp(2.0**-25, 1.0 - 2.0**-24)
    return inside.log_().neg_().log_().neg_()  # in place takes half the time on a CPU


class OneHot(torch.autograd.Function):
    """Forward: the one-hot argmax of the scores. Backward: as if it had been softmax(logits)."""

    @staticmethod
    def forward(scores: Tensor, logits: Tensor) -> Tensor:
        return torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        (logits,) = ctx.saved_tensors
        soft = torch.softmax(logits.clamp(-FAR, FAR), -1)
        return None, torch._softmax_backward_data(grad, soft, -1, soft.dtype)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], *inputs: Tensor
    ) -> tuple[Tensor, int]:
        stacked = (
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(inputs, in_dims, strict=True)
        )
        return OneHot.apply(*stacked), 0


def hard_choice(
    scores: Float[Tensor, "*batch N"],
    *,
    allowed: Bool[Tensor, "*#batch N"] | None = None,
    uniform: Float[Tensor, "*batch N"] | None = None,
    noise: Float[Tensor, "*batch N"] | None = None,
    temperature: float | Tensor = 1.0,
) -> Float[Tensor, "*batch N"]:
    """One-hot choice over the last dimension with a straight-through gradient.

    Args:
        scores: the scores, of any floating type.
        allowed: what may be chosen. A row in which nothing is allowed comes back all zero.
        uniform: numbers in [0, 1) that become Gumbel noise; without them the choice is the argmax.
        noise: Gumbel noise itself, if the caller has already computed it.
        temperature: of the softmax whose gradient is used; it does not change the choice.

    Returns:
        Exactly 0 or 1 in every entry, in float32 (float64 for float64 scores).
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if uniform is not None:
        scores = scores + gumbel(uniform)
    if noise is not None:
        scores = scores + noise
    if allowed is not None:
        scores = torch.where(allowed, scores.clamp(min=LOWEST_ALLOWED), NOT_ALLOWED)
    logits = scores if _is_one(temperature) else scores / temperature
    if torch.compiler.is_compiling():
        choice = _plain_one_hot(scores.detach(), logits)
    else:
        choice = OneHot.apply(scores.detach(), logits)
    return choice if allowed is None else choice * allowed  # a row may have nothing that is allowed


def log_shares(
    scores: Float[Tensor, "*batch N"],
    allowed: Bool[Tensor, "*#batch N"] | None,
    temperature: float | Tensor,
) -> Float[Tensor, "*batch N"]:
    """Log of the softmax whose gradient `hard_choice` uses; what is not allowed has a share of 0.

    In a row in which nothing is allowed all shares are equal.
    """
    if allowed is not None:
        scores = torch.where(allowed, scores.clamp(min=LOWEST_ALLOWED), NOT_ALLOWED)
    return torch.log_softmax((scores / temperature).clamp(-FAR, FAR), -1)


def drop_scores(
    scores: Float[Tensor, "*shape"], uniform: Float[Tensor, "*shape"] | None, p: float | Tensor
) -> Float[Tensor, "*shape"]:
    """Dropout on scores (paper: p = 0.35 on coordinate arithmetic), unless `uniform` is None.

    A dropped score is zero and can still win. The mask comes from the caller's uniform numbers, as
    the Gumbel noise does, so that a training step is a function of its noise.
    """
    if uniform is None:
        return scores
    return torch.where(uniform < p, 0.0, scores / (1.0 - p))


def _plain_one_hot(scores: Tensor, logits: Tensor) -> Tensor:
    """`OneHot` for the compiler, which fuses this form and loses the other's vmapped gradient."""
    hard = torch.zeros_like(scores).scatter(-1, scores.argmax(-1, keepdim=True), 1.0)
    soft = torch.softmax(logits.clamp(-FAR, FAR), -1)
    # In this order the bracket is exactly zero and the value stays exactly one-hot.
    return hard + (soft - soft.detach())


def _is_one(temperature: float | Tensor) -> bool:
    # A scheduled temperature is a tensor on the device; reading it would stall.
    return not isinstance(temperature, Tensor) and temperature == 1
