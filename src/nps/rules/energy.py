"""The free energy of a stage: an objective that learns from all that the stage could have done.

Not in the paper, whose gradient comes from the one outcome that was drawn, straight through the
choices. Here every slot, rule and context is tried (`RuleLayer.every_update`), and the choice
learns which of them would have been right (docs/notes/recipe.md). What a trained layer applies is
still the argmax of Algorithms 1 and 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.rules.check import require_int, require_number, require_type
from nps.rules.choice import NOT_ALLOWED
from nps.rules.config import MIN_TEMPERATURE
from nps.rules.projection import exact
from nps.rules.slots import unsqueeze_right

if TYPE_CHECKING:
    from jaxtyping import Float

FORBIDDEN = NOT_ALLOWED / 2
"""Log-probabilities below this are of choices that cannot be made."""


def free_energy(
    log_prior: Float[Tensor, "*batch M N M"],
    losses: Float[Tensor, "*batch M N M"],
    temperature: float | Tensor,
    *,
    dims: int = 3,
) -> Float[Tensor, "*batch"]:
    r"""The free energy of a choice between updates, a loss to train rules and selection with.

    .. math::
        F = -T \log \sum_{p,r,c} \pi(p, r)\, \rho(c \mid p)\, e^{-\ell(p,r,c)/T}

    It lies between the loss of the best update (:math:`T \to 0`, winner takes all) and the expected
    loss (:math:`T \to \infty`). Each update learns with the weight of its posterior,
    :math:`w \propto \pi\rho\, e^{-\ell/T}`, so rules specialise instead of hedging; the gradient
    to the scores is :math:`T(\pi - w)`, so selection learns what would have been right.
    docs/notes/recipe.md compares it with straight-through gradients.

    Args:
        log_prior: of each update, as from `every_update`: (..., M, N, M).
        losses: the loss if that update alone were applied, of the same shape.
        temperature: T, in the units of the losses. A number or, for a schedule, a tensor with one
            value for each element of the batch or one for all.
        dims: how many of the last dimensions are one choice. 3 for `SequentialNPS`; 2 for
            `ParallelNPS`, whose slots choose independently, if the loss is a sum over slots.

    Returns:
        The free energy of each choice: (...), with `dims=2` (..., M).

    Example::

        layer = SequentialNPS(slot_dim=8, num_rules=4)
        slots, target = torch.randn(2, 32, 5, 8)
        log_prior, updated = layer.every_update(slots)
        error = (slots - target).square().mean(-1)  # (32, 5): of slots as they are
        others = (error.sum(-1, keepdim=True) - error)[..., None, None]
        losses = others + (updated - target[:, :, None, None]).square().mean(-1)
        free_energy(log_prior, losses, temperature=0.01).mean().backward()
    """
    _require_alike(log_prior, losses)
    require_int("dims", dims, at_least=1, at_most=max(log_prior.dim(), 1))
    if not isinstance(temperature, Tensor):
        infinity = float("inf")
        require_number("temperature", temperature, MIN_TEMPERATURE, infinity, open_top=True)
        temperature = log_prior.new_full((), temperature)
    loss, prior = exact(losses).flatten(-dims), exact(log_prior).flatten(-dims)
    # Above the smallest loss, which is free of rounding where the temperature is low.
    least = loss.detach().amin(-1, keepdim=True)
    scaled = (loss - least) / unsqueeze_right(temperature, 1)
    return least.squeeze(-1) - temperature * (prior - scaled).logsumexp(-1)


@torch.no_grad()
def regret(
    log_prior: Float[Tensor, "*batch M N M"],
    losses: Float[Tensor, "*batch M N M"],
    *,
    dims: int = 3,
) -> Float[Tensor, "*batch"]:
    r"""How much worse the scores choose than the best choice, known afterwards, would have been.

    .. math::
        \sum_{p,r,c} \pi(p, r)\, \rho(c \mid p)\, \ell(p,r,c) - \min_{p,r,c} \ell(p,r,c)

    In units of the loss, and independent of what no choice can change. Its mean over a batch is a
    temperature for the free energy that needs no tuning to a task whose targets are given: high
    while the scores cannot tell what is right, low once they can, so that rules do not hedge. Not
    for slots that are learned with the rules: they can make it small. Without gradient.
    """
    _require_alike(log_prior, losses)
    prior, loss = exact(log_prior).flatten(-dims), exact(losses).flatten(-dims)
    best = torch.where(prior > FORBIDDEN, loss, torch.inf).amin(-1, keepdim=True)
    return (prior.exp() * (loss - best)).sum(-1)


def _require_alike(log_prior: Tensor, losses: Tensor) -> None:
    for name, tensor in {"log_prior": log_prior, "losses": losses}.items():
        require_type(name, tensor, Tensor, "a tensor")
    if losses.shape != log_prior.shape:
        raise ValueError(
            f"losses: got shape {tuple(losses.shape)}, expected {tuple(log_prior.shape)}, "
            "that of log_prior"
        )
