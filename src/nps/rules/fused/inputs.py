"""What a fused stage works on, and small helpers for it.

The tensors are those of S models side by side. Of one model on a CPU they come as they are: a small
stage is made of small operations there, and views around a dimension of one are some of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.rules.gumbel import FAR

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


class Inputs(NamedTuple):
    """The slots and weights, to which there are gradients, then noise and settings."""

    slots: Float[Tensor, "*S B M D"]
    rule_map: Float[Tensor, "*S R D"]
    """Slots to scores: W^q and the rules' keys in one, and in Algorithm 2 the two bids before."""
    bind_map: Float[Tensor, "*S D D"]
    """W̃^q and W̃^k in one: score_pj = V_p · bind_map · V_j."""
    weight_in: Float[Tensor, "*S N I H"]
    bias_in: Float[Tensor, "*S N H"]
    weight_out: Float[Tensor, "*S N H D"]
    bias_out: Float[Tensor, "*S N D"]
    uniform: Float[Tensor, "*S B U"]
    allowed: Bool[Tensor, "*S N"] | None
    """Rules that may fire, some at least; None: all."""
    temperature: float | Float[Tensor, "*S"]
    dropout: float | Float[Tensor, "*S"]
    self_context: bool
    learned: bool = True
    """Is the gradient to the slots wanted?"""

    def drops(self) -> bool:
        """Where dropout lies on the device it is there, whatever its value."""
        return isinstance(self.dropout, Tensor) or self.dropout > 0


GRADIENTS = 7
"""The first so many inputs have gradients."""
Grads = tuple[Tensor, Tensor | None, Tensor | None]
"""To the new slots, the rule scores and the context scores."""


def product(a: Float[Tensor, "*S P Q"], b: Float[Tensor, "*S Q R"]) -> Float[Tensor, "*S P R"]:
    """A plain product where there is one model: libraries do more for it than for a batch of 1."""
    if a.dim() == 2:
        return torch.mm(a, b)
    return torch.mm(a[0], b[0]).unsqueeze(0) if len(a) == 1 else torch.bmm(a, b)


def add_product(
    base: Float[Tensor, "*S #P R"], a: Float[Tensor, "*S P Q"], b: Float[Tensor, "*S Q R"]
) -> Float[Tensor, "*S P R"]:
    if a.dim() == 2:
        return torch.addmm(base, a, b)
    if len(a) == 1:  # a bias as a vector: some libraries add it on the way out
        return torch.addmm(base[0, 0] if base.shape[1] == 1 else base[0], a[0], b[0]).unsqueeze(0)
    return torch.baddbmm(base, a, b)


def per_model(value: float | Tensor, like: Tensor) -> float | Tensor:
    """A setting of each model, to meet a tensor of all."""
    if not isinstance(value, Tensor):
        return value
    return value.view(*value.shape, *[1] * (like.dim() - value.dim()))


def dropped(inputs: Inputs, scores: Float[Tensor, "*S B X"]) -> Float[Tensor, "*S B X"]:
    """Dropout, of scores or of their gradients: its numbers are the last of the stage's."""
    if not inputs.drops():
        return scores
    uniform = inputs.uniform[..., -scores.shape[-1] :]
    p = per_model(inputs.dropout, uniform)
    return torch.where(uniform < p, 0.0, scores / (1.0 - p))


def softmax_gradient(
    grad: Tensor, noisy: Tensor, temperature: float | Tensor
) -> Float[Tensor, "*rows X"]:
    """The straight-through gradient to the scores of a choice over the last dimension."""
    divisor = per_model(temperature, noisy)
    whole = not isinstance(temperature, Tensor) and temperature == 1
    soft = torch.softmax((noisy if whole else noisy / divisor).clamp(-FAR, FAR), -1)
    back = torch._softmax_backward_data(grad, soft, -1, soft.dtype)
    return back if whole else back / divisor


def one_hot(index: Int[Tensor, "*rows"], like: Tensor, n: int) -> Float[Tensor, "*rows n"]:
    return (index.unsqueeze(-1) == torch.arange(n, device=index.device)).to(like.dtype)
