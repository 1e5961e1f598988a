"""The tensors of an accelerated stage, and small helpers for its torch operations.

Tensors may have a leading dimension S: several models side by side, as vmap stacks them. A single
model comes without it, since views around a dimension of one would cost more than the arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.rules.choice import FAR, LOWEST_ALLOWED, NOT_ALLOWED

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


class Values(NamedTuple):
    """The inputs of a call of K stages, those with gradients first."""

    slots: Float[Tensor, "*S B M D"]
    features: Float[Tensor, "*S B M F"] | None
    """What selection sees; None: the slots."""
    embedding: Float[Tensor, "*S N rule"]
    select_key: Float[Tensor, "*S key rule"]
    select_query: Float[Tensor, "*S key F"]
    bind_query: Float[Tensor, "*S key F"]
    bind_key: Float[Tensor, "*S key F"]
    weight_in: Float[Tensor, "*S N 2D H"]
    bias_in: Float[Tensor, "*S N H"]
    weight_out: Float[Tensor, "*S N H D"]
    bias_out: Float[Tensor, "*S N D"]
    slot_key: Float[Tensor, "*S key F"] | None
    """From here to `retired`: Algorithm 2 only."""
    applicability: Float[Tensor, "*S N rule key"] | None
    null_rule: Float[Tensor, "*S key"] | None
    retired: Float[Tensor, "*S key"] | None
    slot_mask: Bool[Tensor, "*S B M"] | None
    allowed: Bool[Tensor, "*S N"] | None
    """Rules that may fire; None: all."""
    uniform: Float[Tensor, "*S B K U"]
    temperature: float | Float[Tensor, "*S"]
    dropout: float | Float[Tensor, "*S"]


GRADIENTS = 14
"""How many of the values have gradients."""


class Stage(NamedTuple):
    """The inputs of one stage."""

    slots: Float[Tensor, "*S B M D"]
    features: Float[Tensor, "*S B M F"]
    """The same object as `slots` where selection sees the slots."""
    rule_map: Float[Tensor, "*S R F"]
    """Features to scores: W^q times the rules' keys; in Algorithm 2 the two bids come first."""
    bind_map: Float[Tensor, "*S F F"]
    """W̃^q times W̃^k: the score of slot j as context of slot p is f_p · bind_map · f_j."""
    weight_in: Float[Tensor, "*S N 2D H"]
    bias_in: Float[Tensor, "*S N H"]
    weight_out: Float[Tensor, "*S N H D"]
    bias_out: Float[Tensor, "*S N D"]
    uniform: Float[Tensor, "*S B U"]
    slot_mask: Bool[Tensor, "*S B M"] | None
    rules: Bool[Tensor, "*S N"] | None
    temperature: float | Float[Tensor, "*S"]
    dropout: float | Float[Tensor, "*S"]
    self_context: bool
    null_handicap: float
    needs_slots: bool = True
    """Whether the gradient to slots or features is needed."""

    @property
    def shared(self) -> bool:
        """True where selection sees the slots themselves."""
        return self.features is self.slots

    def drops(self) -> bool:
        """A dropout on the device counts whatever its value, which is not read."""
        return isinstance(self.dropout, Tensor) or self.dropout > 0

    def restricted(self) -> bool:
        return self.slot_mask is not None or self.rules is not None


class Gradients(NamedTuple):
    """Of one stage; `features` is None where they are the slots."""

    slots: Tensor | None
    features: Tensor | None
    rule_map: Tensor
    bind_map: Tensor
    weight_in: Tensor
    bias_in: Tensor
    weight_out: Tensor
    bias_out: Tensor

    def plus(self, other: Gradients) -> Gradients:
        """The sum over two stages; of the slots' gradients the other's, which is the earlier."""
        features = self.features
        if features is not None and other.features is not None:
            features = features + other.features
        rest = (a + b for a, b in zip(self[2:], other[2:], strict=True))
        return Gradients(other.slots, features, *rest)


Grads = tuple[Tensor, Tensor | None, Tensor | None]
"""Gradients to the new slots, the rule scores and the context scores."""


def product(
    a: Float[Tensor, "*S P Q"], b: Float[Tensor, "*S Q R"], out: Tensor | None = None
) -> Float[Tensor, "*S P R"]:
    return torch.mm(a, b, out=out) if a.dim() == 2 else torch.bmm(a, b, out=out)


def add_product(
    base: Float[Tensor, "*S #P R"], a: Float[Tensor, "*S P Q"], b: Float[Tensor, "*S Q R"]
) -> Float[Tensor, "*S P R"]:
    return torch.addmm(base, a, b) if a.dim() == 2 else torch.baddbmm(base, a, b)


def per_model(value: float | Tensor, like: Tensor) -> float | Tensor:
    """A setting of each model, shaped to broadcast against a tensor of all models."""
    if not isinstance(value, Tensor):
        return value
    return value.view(*value.shape, *[1] * (like.dim() - value.dim()))


def dropped(stage: Stage, scores: Float[Tensor, "*S B X"]) -> Float[Tensor, "*S B X"]:
    """Dropout of scores, or of their gradients; its numbers are the last of the stage's."""
    if not stage.drops():
        return scores
    uniform = stage.uniform[..., -scores.shape[-1] :]
    p = per_model(stage.dropout, uniform)
    return torch.where(uniform < p, 0.0, scores / (1.0 - p))


def restrict_pairs(stage: Stage, scores: Float[Tensor, "*S B M N"]) -> Float[Tensor, "*S B M N"]:
    """The scores, out of the competition where a slot is masked or a rule disabled."""
    allowed = None
    if stage.rules is not None:
        *s, n = stage.rules.shape
        allowed = stage.rules.view(*s, 1, 1, n)
    if stage.slot_mask is not None:
        slots = stage.slot_mask.unsqueeze(-1)
        allowed = slots if allowed is None else slots & allowed
    return scores if allowed is None else restrict(scores, allowed)


def restrict(scores: Tensor, allowed: Tensor) -> Tensor:
    return torch.where(allowed, scores.clamp(min=LOWEST_ALLOWED), NOT_ALLOWED)


def is_allowed(best: Tensor) -> Tensor:
    """Whether the best of a row of scores is one that may be chosen."""
    return best > NOT_ALLOWED / 2


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
