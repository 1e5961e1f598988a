"""One stage of Algorithm 1 in torch operations, and its gradient by hand, for a CPU.

The gradients of the choices are straight-through, as in `nps.rules.choice`; the plain twin is
`SequentialNPS.stage`. On a GPU `gpu.py` does the same with Triton kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.kernels.rules.action import act, act_gradient
from nps.kernels.rules.inputs import (
    Gradients,
    Grads,
    Stage,
    add_product,
    dropped,
    is_allowed,
    one_hot,
    product,
    restrict,
    restrict_pairs,
    softmax_gradient,
)
from nps.rules.choice import NOT_ALLOWED, gumbel

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def forward(stage: Stage) -> tuple[Tensor | None, ...]:
    """New slots, then what `backward` and `trace` need."""
    slots, features = stage.slots, stage.features
    (*s, b, m, d), f, n = slots.shape, features.shape[-1], stage.rule_map.shape[-2]
    noise = gumbel(stage.uniform[..., : m * n + m])
    pair_noise, context_noise = noise.split_with_sizes([m * n, m], -1)

    scores = product(features.view(*s, b * m, f), stage.rule_map.mT).view(*s, b, m * n)
    noisy = pair_noise + dropped(stage, scores)
    if stage.restricted():
        noisy = restrict_pairs(stage, noisy.view(*s, b, m, n)).flatten(-2)
    pair = noisy.argmax(-1)
    primary, rule = pair // n, pair % n
    fired = is_allowed(noisy.amax(-1)) if stage.restricted() else None

    at = _rows(primary, m)
    own = features.view(-1, f).index_select(0, at).view(*s, b, f)
    pull = product(own, stage.bind_map)
    matches = (features * pull.unsqueeze(-2)).sum(-1)
    noisy_matches = matches + context_noise
    if stage.slot_mask is not None:
        noisy_matches = restrict(noisy_matches, stage.slot_mask)
    if not stage.self_context:
        noisy_matches.scatter_(-1, primary.unsqueeze(-1), NOT_ALLOWED)
    context = noisy_matches.argmax(-1)
    bound = None
    if stage.slot_mask is not None or (m == 1 and not stage.self_context):
        bound = is_allowed(noisy_matches.amax(-1))

    flat = slots.view(-1, d)
    acting = own if stage.shared else flat.index_select(0, at).view(*s, b, d)
    other = flat.index_select(0, _rows(context, m)).view(*s, b, d)
    if bound is not None:
        other = other * bound.unsqueeze(-1)
    x = torch.cat([acting, other], -1)
    update, *kept = act(stage, x, rule)
    changed = acting + update
    if fired is not None:
        update = update * fired.unsqueeze(-1)
        changed = torch.where(fired.unsqueeze(-1), changed, acting)
    new = slots.clone()
    new.view(-1, d).index_copy_(0, at, changed.view(-1, d))
    scored = scores.view(*s, b, m, n), matches.unsqueeze(-2)
    chosen = primary, rule, context, fired, bound
    return new, *scored, *chosen, noisy, noisy_matches, pull, own, x, update, *kept


def backward(
    stage: Stage,
    grads: Grads,
    scores: Tensor,
    matches: Tensor,
    primary: Int[Tensor, "*S B"],
    rule: Int[Tensor, "*S B"],
    context: Int[Tensor, "*S B"],
    fired: Tensor | None,
    bound: Tensor | None,
    noisy: Tensor,
    noisy_matches: Tensor,
    pull: Tensor,
    own: Tensor,
    x: Tensor,
    update: Tensor,
    *kept: Tensor,
) -> Gradients:
    slots, features, (g, to_rule_scores, to_context_scores) = stage.slots, stage.features, grads
    (*s, b, m, d), f, at = slots.shape, features.shape[-1], _rows(primary, slots.shape[-2])
    to_update = g.reshape(-1, d).index_select(0, at).view(*s, b, d)
    if fired is not None:
        to_update = to_update * fired.unsqueeze(-1)
    to_x, to_rule, *to_weights = act_gradient(stage, to_update, x, rule, *kept)
    to_acting, to_other = to_x.chunk(2, -1)
    if bound is not None:
        to_other *= bound.unsqueeze(-1)

    to_context = (slots * to_other.unsqueeze(-2)).sum(-1)
    to_matches = softmax_gradient(to_context, noisy_matches, stage.temperature)
    if to_context_scores is not None:
        to_matches = to_matches + to_context_scores.squeeze(-2)
    to_pull = (features * to_matches.unsqueeze(-1)).sum(-2)
    to_own = product(to_pull, stage.bind_map.mT)

    to_primary = g * update.unsqueeze(-2)
    if stage.shared:
        to_acting += to_own
        to_primary = to_primary.addcmul_(slots, to_acting.unsqueeze(-2)).sum(-1)
    else:
        to_primary = to_primary.addcmul_(slots, to_acting.unsqueeze(-2)).sum(-1)
        to_primary += (features * to_own.unsqueeze(-2)).sum(-1)
    to_pair = to_primary.unsqueeze(-1) + to_rule.unsqueeze(-2)
    to_scores = softmax_gradient(to_pair.reshape(noisy.shape), noisy, stage.temperature)
    if fired is not None:
        to_scores = to_scores * fired.unsqueeze(-1)
    to_scores = dropped(stage, to_scores)
    if to_rule_scores is not None:
        to_scores = to_scores + to_rule_scores.flatten(-2)
    flat_scores = to_scores.view(*s, b * m, -1)
    to_rule_map = product(flat_scores.mT, features.view(*s, b * m, f))
    to_maps = to_rule_map, product(own.mT, to_pull)
    if not stage.needs_slots:
        return Gradients(None, None, *to_maps, *to_weights)

    pairs = torch.stack([at, _rows(context, m)], -1).view(-1)
    if stage.shared:
        to_slots = add_product(g.reshape(*s, b * m, d), flat_scores, stage.rule_map)
        to_slots = to_slots.view(slots.shape).addcmul_(to_matches.unsqueeze(-1), pull.unsqueeze(-2))
        to_features = None
    else:
        to_slots = g.clone(memory_format=torch.contiguous_format)
        to_features = product(flat_scores, stage.rule_map).view(features.shape)
        to_features.addcmul_(to_matches.unsqueeze(-1), pull.unsqueeze(-2))
        to_features.view(-1, f).index_add_(0, at, to_own.reshape(-1, f))
    to_slots.view(-1, d).index_add_(0, pairs, to_x.view(-1, d))
    return Gradients(to_slots, to_features, *to_maps, *to_weights)


def trace(
    stage: Stage,
    scores: Float[Tensor, "*S B M N"],
    matches: Float[Tensor, "*S B 1 M"],
    primary: Int[Tensor, "*S B"],
    rule: Int[Tensor, "*S B"],
    context: Int[Tensor, "*S B"],
    fired: Tensor | None,
    bound: Tensor | None,
    *kept: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both scores, then the rule that fired on each slot and its context, -1 where none did."""
    here = one_hot(primary, primary, stage.slots.shape[-2]) > 0
    if fired is not None:
        here = here & fired.unsqueeze(-1)
    if bound is not None:
        context = torch.where(bound, context, -1)
    rules, contexts = (torch.where(here, x.unsqueeze(-1), -1) for x in (rule, context))
    return scores, matches, rules, contexts


def _rows(index: Int[Tensor, "*S B"], m: int) -> Int[Tensor, "S*B"]:
    """Positions of the indexed slots among all slots."""
    return torch.arange(0, index.numel() * m, m, device=index.device).add_(index.flatten())
