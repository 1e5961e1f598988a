"""Step 4 in a fused stage: what the chosen rules do, and the gradient of it by hand.

The gradient to the choice needs what every rule would do; all other gradients belong to the chosen
rule alone: on a CPU each rule gets its own rows (`by_rule.py`). On a GPU, where to know how many
rows a rule has would stall, one product serves all rules, with the hidden layers of the others set
to zero in between (as in `nps.rules.chosen`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.rules.fused import by_rule
from nps.rules.fused.inputs import Inputs, add_product, one_hot, product

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def act(
    inputs: Inputs, x: Float[Tensor, "*S T I"], rule: Int[Tensor, "*S T"]
) -> tuple[Float[Tensor, "*S T D"], Tensor, Tensor]:
    """The update of each row, and two tensors for `act_gradient`."""
    return (_all if x.device.type == "cpu" else _masked)(inputs, x, rule)


def act_gradient(
    inputs: Inputs,
    g: Float[Tensor, "*S T D"],
    x: Float[Tensor, "*S T I"],
    rule: Int[Tensor, "*S T"],
    *kept: Tensor,
) -> tuple[Tensor, ...]:
    """To x, to the choice of every rule (*S, T, N), and to the four weights."""
    gradient = _chosen_gradient if x.device.type == "cpu" else _masked_gradient
    return gradient(inputs, g, x, rule, *kept)


def act_written_out(
    inputs: Inputs, x: Float[Tensor, "*S T I"], choice: Float[Tensor, "*S T N"]
) -> Float[Tensor, "*S T D"]:
    """The same in ordinary operations."""
    hidden = (x.unsqueeze(-3) @ inputs.weight_in + inputs.bias_in.unsqueeze(-2)).relu()
    outputs = hidden @ inputs.weight_out + inputs.bias_out.unsqueeze(-2)
    return (choice.mT.unsqueeze(-1) * outputs).sum(-3)


# -- all outputs, then the gradients of the chosen ones --------------------------------------------


def _all(inputs: Inputs, x: Tensor, rule: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (*s, n, i, h), (t, d) = inputs.weight_in.shape, (x.shape[-2], inputs.bias_out.shape[-1])
    weight_in, bias_in, weight_out, bias_out = inputs[3:7]
    if s:
        weight_in, bias_in, weight_out, bias_out = (w.flatten(0, 1) for w in inputs[3:7])
        x = x.unsqueeze(1).expand(*s, n, t, i).reshape(-1, t, i)
    hidden = torch.baddbmm(bias_in.unsqueeze(1), x.expand(len(bias_in), t, i), weight_in).relu_()
    outputs = torch.baddbmm(bias_out.unsqueeze(1), hidden, weight_out)
    place = torch.arange(t).add(_of_all(rule, n), alpha=t).flatten()
    update = outputs.view(-1, d).index_select(0, place)
    mine = hidden.view(-1, h).index_select(0, place)
    if s:
        return update.view(*s, t, d), outputs.view(*s, n, t, d), mine.view(*s, t, h)
    return update, outputs, mine


def _chosen_gradient(
    inputs: Inputs, g: Tensor, x: Tensor, rule: Tensor, outputs: Tensor, mine: Tensor
) -> tuple[Tensor, ...]:
    *_, n, i, _ = inputs.weight_in.shape
    before, counts = by_rule.count(rule, n)
    given = before, _of_all(rule, n), g, x, mine, inputs.weight_in, inputs.weight_out
    to_choice = (outputs * g.unsqueeze(-3)).sum(-1).mT
    if rule.dim() == 1:
        to_x, *to_weights = by_rule.gradients(counts, *given)
        return to_x, to_choice, *to_weights
    to_x, *to_weights = by_rule.gradients(counts, *(y.flatten(0, 1) for y in given))
    s = len(rule)
    return to_x.view(s, -1, i), to_choice, *(w.unflatten(0, (s, n)) for w in to_weights)


def _of_all(rule: Int[Tensor, "*S T"], n: int) -> Int[Tensor, "*S T"]:
    """The rule's number among those of all models."""
    return rule if rule.dim() == 1 else rule + torch.arange(0, len(rule) * n, n).unsqueeze(-1)


# -- one product for all rules ---------------------------------------------------------------------


def _masked(inputs: Inputs, x: Tensor, rule: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    s, n, i, h = inputs.weight_in.shape
    side_by_side = inputs.weight_in.transpose(1, 2).reshape(s, i, n * h)
    hidden = add_product(inputs.bias_in.view(s, 1, n * h), x, side_by_side).relu_()
    choice = one_hot(rule, x, n)
    mine = (hidden.unflatten(-1, (n, h)) * choice.unsqueeze(-1)).flatten(-2)
    bias = product(choice, inputs.bias_out)
    return add_product(bias, mine, inputs.weight_out.flatten(1, 2)), hidden, mine


def _masked_gradient(
    inputs: Inputs, g: Tensor, x: Tensor, rule: Tensor, hidden: Tensor, mine: Tensor
) -> tuple[Tensor, ...]:
    s, n, i, h = inputs.weight_in.shape
    passed = product(g, inputs.weight_out.flatten(1, 2).mT)
    to_choice = (passed * hidden).unflatten(-1, (n, h)).sum(-1)
    to_choice = add_product(to_choice, g, inputs.bias_out.mT)
    passed = torch.ops.aten.threshold_backward(passed, mine, 0)
    side_by_side = inputs.weight_in.transpose(1, 2).reshape(s, i, n * h)
    to_weight_in = product(x.mT, passed).view(s, i, n, h).transpose(1, 2)
    to_weight_out = product(mine.mT, g).view(s, n, h, -1)
    to_bias_out = product(one_hot(rule, g, n).mT, g)
    to_weights = to_weight_in, passed.sum(1).view(s, n, h), to_weight_out, to_bias_out
    return product(passed, side_by_side.mT), to_choice, *to_weights
