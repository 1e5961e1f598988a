"""One stage of Algorithm 1, for one model or S of them, and its gradient by hand.

Selection and binding see the slots through two small matrices, `rule_map` and `bind_map`: one
product gives all M·N scores, and the primary slot times `bind_map` is what the slots are compared
with for the context. The gradients of the choices are straight-through, as in `gumbel.py`.
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
    d, n = inputs.slots.shape[-1], inputs.rule_map.shape[-2]
    if launch.serves(inputs):
        scores, matches, primary, rule, *chosen = launch.choose_one(inputs)
        raw, *kept = launch.act(inputs, chosen[-1], rule)
        new, update = launch.change_one(inputs, primary, rule, raw)
    else:
        at, scores, matches, primary, rule, *chosen = _choose(inputs)
        update, *kept = act(inputs, chosen[-1], rule)
        changed = chosen[-1][..., :d] + update
        new = inputs.slots.clone()
        new.view(-1, d).index_copy_(0, at, changed.view(-1, d))
    outputs = new, scores.view(*new.shape[:-1], n), matches.unsqueeze(-2)
    return *outputs, primary, rule, *chosen, update, *kept


def _choose(inputs: Inputs) -> tuple[Tensor, ...]:
    """Steps 2 and 3: where the primary slots lie, scores, the choices, and the slots chosen."""
    slots, n = inputs.slots, inputs.rule_map.shape[-2]
    *s, b, m, d = slots.shape
    flat = slots.view(-1, d)
    noise = gumbel(inputs.uniform[..., : m * n + m])
    pair_noise, context_noise = noise.split_with_sizes([m * n, m], -1)

    scores = product(slots.view(*s, b * m, d), inputs.rule_map.mT).view(*s, b, m * n)
    noisy = pair_noise + dropped(inputs, scores)
    if inputs.allowed is not None:
        noisy = torch.where(_of_pairs(inputs.allowed, m), noisy, NOT_ALLOWED)
    pair = noisy.argmax(-1)
    primary, rule = pair // n, pair % n

    at = _rows(primary, m)
    own = flat.index_select(0, at).view(*s, b, d)
    pull = product(own, inputs.bind_map)
    matches = (slots * pull.unsqueeze(-2)).sum(-1)
    noisy_matches = matches + context_noise
    if not inputs.self_context:
        noisy_matches.scatter_(-1, primary.unsqueeze(-1), NOT_ALLOWED)
    context = noisy_matches.argmax(-1)
    x = torch.cat([own, flat.index_select(0, _rows(context, m)).view(*s, b, d)], -1)
    return at, scores, matches, primary, rule, context, noisy, noisy_matches, pull, x


def backward(
    inputs: Inputs,
    grads: Grads,
    primary: Int[Tensor, "*S B"],
    rule: Int[Tensor, "*S B"],
    context: Int[Tensor, "*S B"],
    noisy: Tensor,
    noisy_matches: Tensor,
    pull: Tensor,
    x: Tensor,
    update: Tensor,
    *kept: Tensor,
) -> tuple[Tensor | None, ...]:
    *s, b, m, d = inputs.slots.shape
    back: tuple[Tensor | None, Tensor, Tensor]
    if launch.serves(inputs):
        chosen = primary, context, noisy, noisy_matches, pull, update
        at = primary.view(*s, b, 1, 1).expand(*s, b, 1, d)
        to_update = grads[0].gather(-2, at).squeeze(-2)
        to_x, to_rule, *to_weights = launch.act_gradient(inputs, to_update, x, rule, *kept)
        back = launch.choose_one_gradient(inputs, grads, chosen, to_x, to_rule)
    else:
        at = _rows(primary, m)
        chosen = at, context, noisy, noisy_matches, pull, update
        to_update = grads[0].reshape(-1, d).index_select(0, at).view(*s, b, d)
        to_x, to_rule, *to_weights = act_gradient(inputs, to_update, x, rule, *kept)
        back = _choose_gradient(inputs, grads, chosen, to_x, to_rule)
    to_slots, to_scores, to_pull = back
    to_rule_map = product(to_scores.view(*s, b * m, -1).mT, inputs.slots.view(*s, b * m, d))
    to_bind_map = product(x[..., :d].mT, to_pull)
    return to_slots, to_rule_map, to_bind_map, *to_weights


def _choose_gradient(
    inputs: Inputs, grads: Grads, chosen: tuple[Tensor, ...], to_x: Tensor, to_rule: Tensor
) -> tuple[Tensor | None, Tensor, Tensor]:
    """To the slots, if wanted, to the scores and to what the slots were compared with."""
    at, context, noisy, noisy_matches, pull, update = chosen
    slots, (g, to_rule_scores, to_context_scores) = inputs.slots, grads
    *s, b, m, d = slots.shape
    to_own, to_other = to_x.chunk(2, -1)

    to_context = (slots * to_other.unsqueeze(-2)).sum(-1)
    to_matches = softmax_gradient(to_context, noisy_matches, inputs.temperature)
    if to_context_scores is not None:
        to_matches = to_matches + to_context_scores.squeeze(-2)
    to_pull = (slots * to_matches.unsqueeze(-1)).sum(-2)
    to_own += product(to_pull, inputs.bind_map.mT)

    to_primary = (g * update.unsqueeze(-2)).addcmul_(slots, to_own.unsqueeze(-2)).sum(-1)
    to_pair = to_primary.unsqueeze(-1) + to_rule.unsqueeze(-2)
    to_scores = softmax_gradient(to_pair.reshape(noisy.shape), noisy, inputs.temperature)
    to_scores = dropped(inputs, to_scores)
    if to_rule_scores is not None:
        to_scores = to_scores + to_rule_scores.flatten(-2)
    if not inputs.learned:
        return None, to_scores, to_pull

    flat = to_scores.view(*s, b * m, -1)
    to_slots = add_product(g.reshape(*s, b * m, d), flat, inputs.rule_map).view(slots.shape)
    to_slots.addcmul_(to_matches.unsqueeze(-1), pull.unsqueeze(-2))
    pairs = torch.stack([at, _rows(context, m)], -1).view(-1)
    to_slots.view(-1, d).index_add_(0, pairs, to_x.view(-1, d))
    return to_slots, to_scores, to_pull


def written_out(inputs: Inputs) -> tuple[Tensor, ...]:
    """The same in ordinary operations, with the gradients that autograd gives them."""
    slots, (m, n) = inputs.slots, (inputs.slots.shape[-2], inputs.rule_map.shape[-2])
    pair_noise, context_noise = gumbel(inputs.uniform[..., : m * n + m]).split([m * n, m], -1)
    scores = (slots @ inputs.rule_map.mT.unsqueeze(-3)).flatten(-2)
    temperature = per_model(inputs.temperature, scores)
    noisy = dropped(inputs, scores) + pair_noise
    rules = None if inputs.allowed is None else _of_pairs(inputs.allowed, m)
    pair = hard_choice(noisy, allowed=rules, temperature=temperature).unflatten(-1, (m, n))
    primary, rule = pair.sum(-1), pair.sum(-2)
    own = (primary.unsqueeze(-1) * slots).sum(-2)
    matches = (slots @ (own @ inputs.bind_map).unsqueeze(-1)).squeeze(-1)
    others = None if inputs.self_context else primary.detach() == 0
    context = hard_choice(matches + context_noise, allowed=others, temperature=temperature)
    x = torch.cat([own, (context.unsqueeze(-1) * slots).sum(-2)], -1)
    update = act_written_out(inputs, x, rule)
    new = slots + primary.unsqueeze(-1) * update.unsqueeze(-2)
    return new, scores.unflatten(-1, (m, n)), matches.unsqueeze(-2)


def choices(
    scores: Tensor, context_scores: Tensor, primary: Tensor, rule: Tensor, context: Tensor
) -> Choices:
    m, n = scores.shape[-2:]
    rules, contexts = one_hot(rule, scores, n), one_hot(context, scores, m)
    primaries = one_hot(primary, scores, m)
    rows = rules.unsqueeze(-2), contexts.unsqueeze(-2)
    return Choices(primaries, *rows, scores, context_scores)


def _of_pairs(allowed: Bool[Tensor, "*S N"], m: int) -> Bool[Tensor, "*S 1 M*N"]:
    """Which pairs of slot and rule may fire, from which rules may."""
    return allowed.unsqueeze(-2).expand(*allowed.shape[:-1], m, -1).flatten(-2).unsqueeze(-2)


def _rows(index: Int[Tensor, "*S B"], m: int) -> Int[Tensor, "S*B"]:
    """Where the slots of an index lie among all slots."""
    return torch.arange(0, index.numel() * m, m, device=index.device).add_(index.flatten())
