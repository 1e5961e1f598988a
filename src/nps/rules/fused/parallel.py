"""One stage of Algorithm 2, for one model or S of them, and its gradient by hand.

`rule_map` begins with two rows more, the joint bid of the rules and the null rule's, so that one
product gives bids and scores; `bind_map` turns every slot into what its contexts are compared with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.rules.fused import launch
from nps.rules.fused.action import act, act_gradient, act_written_out
from nps.rules.fused.inputs import (
    Grads,
    Inputs,
    add_product,
    dropped,
    one_hot,
    per_model,
    product,
    softmax_gradient,
)
from nps.rules.gumbel import NOT_ALLOWED, gumbel, hard_choice
from nps.rules.stage import Choices

if TYPE_CHECKING:
    from jaxtyping import Bool, Int


def forward(inputs: Inputs) -> tuple[Tensor, ...]:
    *s, b, m, d = inputs.slots.shape
    slots = inputs.slots.view(*s, b * m, d)
    pull = product(slots, inputs.bind_map)
    if launch.serves(inputs):
        scores, matches, won, rule, *chosen = launch.choose_each(inputs, pull)
        raw, *kept = launch.act(inputs, chosen[-1], rule.view(*s, b * m))
        new, update = launch.change_each(inputs, won, rule, raw)
    else:
        scores, matches, won, rule, *chosen = _choose(inputs, pull)
        update, *kept = act(inputs, chosen[-1], rule.view(*s, b * m))
        new = torch.where(won.view(*s, b * m, 1), slots + update, slots).view_as(inputs.slots)
    return new, scores, matches, won, rule, *chosen, pull, update, *kept


def _choose(inputs: Inputs, pull: Tensor) -> tuple[Tensor, ...]:
    """Steps 2 to 4: which slots are won, by which rule, with which context, and both slots."""
    (*s, b, m, d), n = inputs.slots.shape, inputs.rule_map.shape[-2] - 2
    slots = inputs.slots.view(-1, m, d)
    bid_noise, rule_noise, context_noise = _noise(inputs)
    both = product(slots.view(*s, b * m, d), inputs.rule_map.mT).view(*s, b, m, n + 2)
    bids, scores = both.split([2, n], -1)

    noisy_bids = bids + bid_noise
    won = noisy_bids[..., 0] >= noisy_bids[..., 1]
    noisy = dropped(inputs, scores.flatten(-2)).view(*s, b, m, n) + rule_noise
    if inputs.allowed is not None:
        noisy = torch.where(inputs.allowed.view(*s, 1, 1, n), noisy, NOT_ALLOWED)
    matches = torch.bmm(pull.view(-1, m, d), slots.mT).view(*s, b, m, m)
    noisy_matches = matches + context_noise
    if not inputs.self_context:
        noisy_matches.diagonal(0, -2, -1).fill_(NOT_ALLOWED)
    rule, context = noisy.argmax(-1), noisy_matches.argmax(-1)

    flat = slots.view(-1, d)
    x = torch.cat([flat, flat.index_select(0, _rows(context))], -1).view(*s, b * m, 2 * d)
    return scores, matches, won, rule, context, noisy_bids, noisy, noisy_matches, x


def backward(
    inputs: Inputs,
    grads: Grads,
    won: Bool[Tensor, "*S B M"],
    rule: Int[Tensor, "*S B M"],
    context: Int[Tensor, "*S B M"],
    noisy_bids: Tensor,
    noisy: Tensor,
    noisy_matches: Tensor,
    x: Tensor,
    pull: Tensor,
    update: Tensor,
    *kept: Tensor,
) -> tuple[Tensor | None, ...]:
    *s, b, m, d = inputs.slots.shape
    chosen, rule = (context, noisy_bids, noisy, noisy_matches, pull, update), rule.view(*s, b * m)
    back: tuple[Tensor | None, Tensor, Tensor]
    to_update = (grads[0] * won.unsqueeze(-1)).reshape(*s, b * m, d)
    if launch.serves(inputs):
        to_x, to_rule, *to_weights = launch.act_gradient(inputs, to_update, x, rule, *kept)
        back = launch.choose_each_gradient(inputs, grads, chosen, to_x, to_rule)
    else:
        to_x, to_rule, *to_weights = act_gradient(inputs, to_update, x, rule, *kept)
        back = _choose_gradient(inputs, grads, chosen, to_x, to_rule)
    to_slots, to_scores, to_pull = back
    if to_slots is not None:
        to_slots = add_product(to_slots, to_pull, inputs.bind_map.mT).view(*s, b, m, d)
    slots = inputs.slots.view(*s, b * m, d)
    return to_slots, product(to_scores.mT, slots), product(slots.mT, to_pull), *to_weights


def _choose_gradient(
    inputs: Inputs, grads: Grads, chosen: tuple[Tensor, ...], to_x: Tensor, to_rule: Tensor
) -> tuple[Tensor | None, Tensor, Tensor]:
    """To the slots, if wanted (but for what goes through `pull`), to bids and scores, to `pull`."""
    context, noisy_bids, noisy, noisy_matches, pull, update = chosen
    (*s, b, m, d), n = inputs.slots.shape, inputs.rule_map.shape[-2] - 2
    g, to_rule_scores, to_context_scores = grads
    g, slots = g.reshape(*s, b * m, d), inputs.slots.view(-1, m, d)
    to_own, to_other = to_x.chunk(2, -1)

    to_context = torch.bmm(to_other.reshape(-1, m, d), slots.mT).view(*s, b, m, m)
    to_matches = softmax_gradient(to_context, noisy_matches, inputs.temperature)
    if to_context_scores is not None:
        to_matches = to_matches + to_context_scores
    to_matches = to_matches.view(-1, m, m)
    to_pull = torch.bmm(to_matches, slots).view(*s, b * m, d)

    to_won = (g * update).sum(-1).view(*s, b, m, 1)
    bid = torch.tensor([1.0, 0.0], dtype=g.dtype, device=g.device)
    to_bids = softmax_gradient(to_won * bid, noisy_bids, inputs.temperature)
    to_scores = softmax_gradient(to_rule.reshape(*s, b, m, n), noisy, inputs.temperature)
    to_scores = dropped(inputs, to_scores.view(*s, b, m * n)).view(*s, b, m, n)
    if to_rule_scores is not None:
        to_scores = to_scores + to_rule_scores
    to_both = torch.cat([to_bids, to_scores], -1).view(*s, b * m, n + 2)
    if not inputs.learned:
        return None, to_both, to_pull

    to_slots = add_product(g + to_own, to_both, inputs.rule_map)
    others = torch.bmm(to_matches.mT, pull.view(-1, m, d))
    others.baddbmm_(one_hot(context, g, m).view(-1, m, m).mT, to_other.reshape(-1, m, d))
    return to_slots + others.view(*s, b * m, d), to_both, to_pull


def written_out(inputs: Inputs) -> tuple[Tensor, ...]:
    """The same in ordinary operations, with the gradients that autograd gives them."""
    slots, n = inputs.slots, inputs.rule_map.shape[-2] - 2
    m = slots.shape[-2]
    bid_noise, rule_noise, context_noise = _noise(inputs)
    heat = per_model(inputs.temperature, slots)
    bids, scores = (slots @ inputs.rule_map.mT.unsqueeze(-3)).split([2, n], -1)
    won = hard_choice(bids + bid_noise, temperature=heat)[..., 0]
    noisy = dropped(inputs, scores.flatten(-2)).unflatten(-1, (m, n)) + rule_noise
    rules = None if inputs.allowed is None else inputs.allowed.unsqueeze(-2).unsqueeze(-2)
    rule = hard_choice(noisy, allowed=rules, temperature=heat)
    matches = slots @ inputs.bind_map.unsqueeze(-3) @ slots.mT
    others = None
    if not inputs.self_context:
        others = ~torch.eye(m, dtype=torch.bool, device=slots.device)
    context = hard_choice(matches + context_noise, allowed=others, temperature=heat)
    x = torch.cat([slots, context @ slots], -1).flatten(-3, -2)
    update = act_written_out(inputs, x, rule.flatten(-3, -2)).view_as(slots)
    return slots + won.unsqueeze(-1) * update, scores, matches


def choices(
    scores: Tensor, context_scores: Tensor, won: Tensor, rule: Tensor, context: Tensor
) -> Choices:
    m, n = scores.shape[-2:]
    rules, contexts = one_hot(rule, scores, n), one_hot(context, scores, m)
    return Choices(won.to(scores.dtype), rules, contexts, scores, context_scores)


def _noise(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """For the bids (M, 2), the rules (M, N) and the contexts (M, M)."""
    m, n = inputs.slots.shape[-2], inputs.rule_map.shape[-2] - 2
    sizes = [2 * m, m * n, m * m]
    noise = gumbel(inputs.uniform[..., : sum(sizes)]).split(sizes, -1)
    bids, rules, contexts = (x.unflatten(-1, (m, -1)) for x in noise)
    return bids, rules, contexts


def _rows(context: Int[Tensor, "*S B M"]) -> Int[Tensor, "S*B*M"]:
    """Where the contexts lie among all slots."""
    rows, m = context.numel(), context.shape[-1]
    starts = torch.arange(0, rows, m, device=context.device)
    return (context.view(-1, m) + starts.unsqueeze(-1)).view(-1)
