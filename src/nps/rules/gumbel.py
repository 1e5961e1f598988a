"""The hard, differentiable choice (paper, section 3.1, steps 2 and 3).

Forward: the one-hot argmax of the scores plus Gumbel noise. Backward: the gradient of the softmax
(straight-through; Jang et al., 2016). `torch.nn.functional.gumbel_softmax` takes no generator,
overflows in half precision and its noise differs under compilation, so this is our own: it works
in float32 at least, and its randomness comes in as uniform numbers that the caller owns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

# Scores are clamped here so that infinities cannot meet and give NaN. What is not allowed lies far
# below any clamped score, and both stay finite after division by the smallest temperature.
SCORE_LIMIT = 1e20
NOT_ALLOWED = -1e25
MIN_TEMPERATURE = 1e-6


def gumbel(uniform: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Gumbel(0, 1) noise from uniform numbers in [0, 1)."""
    # float32's open interval: log(0) at either end would be infinite.
    inside = uniform.float().clamp(2.0**-25, 1.0 - 2.0**-24)
    return -torch.log(-torch.log(inside))


def hard_choice(
    scores: Float[Tensor, "*batch N"],
    *,
    allowed: Bool[Tensor, "*batch N"] | None = None,
    uniform: Float[Tensor, "*batch N"] | None = None,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch N"]:
    """One-hot choice over the last dimension with a straight-through gradient.

    Args:
        scores: the scores, of any floating type.
        allowed: what may be chosen. A row in which nothing is allowed comes back all zero.
        uniform: numbers in [0, 1) that become Gumbel noise; without them the choice is the argmax.
        temperature: of the softmax whose gradient is used. It does not change the value.

    Returns:
        Exactly 0 or 1 in every place, in float32 (float64 for float64 scores).
    """
    logits = scores.to(torch.promote_types(scores.dtype, torch.float32))
    logits = logits.clamp(-SCORE_LIMIT, SCORE_LIMIT)
    if uniform is not None:
        logits = logits + gumbel(uniform)
    if allowed is not None:
        logits = torch.where(allowed, logits, NOT_ALLOWED)
    best = logits.argmax(-1, keepdim=True)
    if not torch.is_grad_enabled():  # the same in fewer passes over all N
        one = torch.ones_like(best) if allowed is None else allowed.gather(-1, best)
        return torch.zeros_like(logits).scatter(-1, best, one.to(logits.dtype))
    options = torch.arange(logits.shape[-1], device=logits.device)
    chosen = best == options
    if allowed is not None:
        chosen = chosen & allowed
    hard = chosen.to(logits.dtype)
    soft = torch.softmax(logits / temperature, -1)
    # In this order the bracket is exactly zero and the value stays exactly one-hot.
    return hard + (soft - soft.detach())
