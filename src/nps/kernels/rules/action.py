"""Step 4 of an accelerated stage on a CPU: the chosen rules' updates, and their gradient by hand.

The gradient to the choice needs what every rule would do; all other gradients belong to the chosen
rule alone, and are computed rule by rule on its own rows (`by_rule.py`). The plain twin is
`MLPRules.forward`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.kernels.rules import by_rule
from nps.kernels.rules.inputs import Stage

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def act(
    stage: Stage, x: Float[Tensor, "*S T I"], rule: Int[Tensor, "*S T"]
) -> tuple[Float[Tensor, "*S T D"], Tensor, Tensor]:
    """The update of each row, then all outputs and the chosen hidden layers for the gradient."""
    (*s, n, i, h), (t, d) = stage.weight_in.shape, (x.shape[-2], stage.bias_out.shape[-1])
    weights = stage.weight_in, stage.bias_in, stage.weight_out, stage.bias_out
    if s:
        weights = tuple(w.flatten(0, 1) for w in weights)  # type: ignore[assignment]
        x = x.unsqueeze(1).expand(*s, n, t, i).reshape(-1, t, i)
    weight_in, bias_in, weight_out, bias_out = weights
    hidden = torch.baddbmm(bias_in.unsqueeze(1), x.expand(len(bias_in), t, i), weight_in).relu_()
    outputs = torch.baddbmm(bias_out.unsqueeze(1), hidden, weight_out)
    place = torch.arange(t).add(_among_all_models(rule, n), alpha=t).flatten()
    update = outputs.view(-1, d).index_select(0, place)
    chosen = hidden.view(-1, h).index_select(0, place)
    if s:
        return update.view(*s, t, d), outputs.view(*s, n, t, d), chosen.view(*s, t, h)
    return update, outputs, chosen


def act_gradient(
    stage: Stage,
    g: Float[Tensor, "*S T D"],
    x: Float[Tensor, "*S T I"],
    rule: Int[Tensor, "*S T"],
    outputs: Float[Tensor, "*S N T D"],
    chosen: Float[Tensor, "*S T H"],
) -> tuple[Tensor, ...]:
    """To x, to the choice of every rule (*S, T, N), and to the four weights."""
    *_, n, i, _ = stage.weight_in.shape
    before, counts = by_rule.count(rule, n)
    rows = before, _among_all_models(rule, n), g, x, chosen, stage.weight_in, stage.weight_out
    to_choice = (outputs * g.unsqueeze(-3)).sum(-1).mT
    if rule.dim() == 1:
        to_x, *to_weights = by_rule.gradients(counts, *rows)
        return to_x, to_choice, *to_weights
    to_x, *to_weights = by_rule.gradients(counts, *(y.flatten(0, 1) for y in rows))
    s = len(rule)
    return to_x.view(s, -1, i), to_choice, *(w.unflatten(0, (s, n)) for w in to_weights)


def _among_all_models(rule: Int[Tensor, "*S T"], n: int) -> Int[Tensor, "*S T"]:
    """The rule's index among the rules of all models."""
    return rule if rule.dim() == 1 else rule + torch.arange(0, len(rule) * n, n).unsqueeze(-1)
