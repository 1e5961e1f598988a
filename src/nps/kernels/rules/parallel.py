"""One stage of Algorithm 2 in torch operations, and its gradient by hand, for a CPU.

The plain twin is `ParallelNPS.stage`; on a GPU `gpu.py` does the same with Triton kernels.
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
    product,
    restrict,
    restrict_pairs,
    softmax_gradient,
)
from nps.rules.choice import NOT_ALLOWED, gumbel

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


def forward(stage: Stage) -> tuple[Tensor | None, ...]:
    """New slots, then what `backward` and `trace` need."""
    slots, features = stage.slots, stage.features
    (*s, b, m, d), f, n = slots.shape, features.shape[-1], stage.weight_in.shape[-3]
    bid_noise, rule_noise, context_noise = _noise(stage)
    flat = features.view(*s, b * m, f)
    both = product(flat, stage.rule_map.mT).view(*s, b, m, n + 2)
    bids, scores = both.split([2, n], -1)

    noisy_bids = bids + bid_noise
    if stage.null_handicap:
        noisy_bids[..., 1] -= stage.null_handicap
    won = noisy_bids[..., 0] >= noisy_bids[..., 1]
    noisy = dropped(stage, scores.flatten(-2)).view(*s, b, m, n) + rule_noise
    fires = None
    if stage.restricted():
        noisy = restrict_pairs(stage, noisy)
        fires = is_allowed(noisy.amax(-1))
        won = won & fires
    rule = noisy.argmax(-1)

    pull = product(flat, stage.bind_map)
    every = features.view(-1, m, f)
    matches = torch.bmm(pull.view(-1, m, f), every.mT).view(*s, b, m, m)
    noisy_matches = matches + context_noise
    if stage.slot_mask is not None:
        noisy_matches = restrict(noisy_matches, stage.slot_mask.unsqueeze(-2))
    if not stage.self_context:
        noisy_matches.diagonal(0, -2, -1).fill_(NOT_ALLOWED)
    context = noisy_matches.argmax(-1)
    bound = None
    if stage.slot_mask is not None or (m == 1 and not stage.self_context):
        bound = is_allowed(noisy_matches.amax(-1))

    rows = slots.view(-1, d)
    other = rows.index_select(0, _rows(context))
    if bound is not None:
        other = other * bound.view(-1, 1)
    x = torch.cat([rows, other], -1).view(*s, b * m, 2 * d)
    update, *kept = act(stage, x, rule.view(*s, b * m))
    own = slots.view(*s, b * m, d)
    new = torch.where(won.view(*s, b * m, 1), own + update, own).view_as(slots)
    chosen = won, rule, context, fires, bound
    return new, scores, matches, *chosen, noisy_bids, noisy, noisy_matches, pull, x, update, *kept


def backward(
    stage: Stage,
    grads: Grads,
    scores: Tensor,
    matches: Tensor,
    won: Bool[Tensor, "*S B M"],
    rule: Int[Tensor, "*S B M"],
    context: Int[Tensor, "*S B M"],
    fires: Tensor | None,
    bound: Tensor | None,
    noisy_bids: Tensor,
    noisy: Tensor,
    noisy_matches: Tensor,
    pull: Tensor,
    x: Tensor,
    update: Tensor,
    *kept: Tensor,
) -> Gradients:
    slots, features, (g, to_rule_scores, to_context_scores) = stage.slots, stage.features, grads
    (*s, b, m, d), f, n = slots.shape, features.shape[-1], noisy.shape[-1]
    to_update = (g * won.unsqueeze(-1)).reshape(*s, b * m, d)
    to_x, to_rule, *to_weights = act_gradient(stage, to_update, x, rule.view(*s, b * m), *kept)
    to_own, to_other = to_x.chunk(2, -1)
    if bound is not None:
        to_other *= bound.view(*s, b * m, 1)
    g, every = g.reshape(*s, b * m, d), features.view(-1, m, f)

    to_context = torch.bmm(to_other.reshape(-1, m, d), slots.view(-1, m, d).mT).view(*s, b, m, m)
    to_matches = softmax_gradient(to_context, noisy_matches, stage.temperature)
    if to_context_scores is not None:
        to_matches = to_matches + to_context_scores
    to_matches = to_matches.view(-1, m, m)
    to_pull = torch.bmm(to_matches, every).view(*s, b * m, f)

    to_won = (g * update).sum(-1).view(*s, b, m, 1)
    bid = torch.tensor([1.0, 0.0], dtype=g.dtype, device=g.device)
    to_bids = softmax_gradient(to_won * bid, noisy_bids, stage.temperature)
    to_scores = softmax_gradient(to_rule.reshape(*s, b, m, n), noisy, stage.temperature)
    if fires is not None:
        to_bids, to_scores = (y * fires.unsqueeze(-1) for y in (to_bids, to_scores))
    to_scores = dropped(stage, to_scores.reshape(*s, b, m * n)).view(*s, b, m, n)
    if to_rule_scores is not None:
        to_scores = to_scores + to_rule_scores
    to_both = torch.cat([to_bids, to_scores], -1).view(*s, b * m, n + 2)
    flat = features.view(*s, b * m, f)
    to_maps = product(to_both.mT, flat), product(flat.mT, to_pull)
    if not stage.needs_slots:
        return Gradients(None, None, *to_maps, *to_weights)

    to_features = add_product(
        torch.bmm(to_matches.mT, pull.view(-1, m, f)).view(*s, b * m, f), to_both, stage.rule_map
    )
    to_features = add_product(to_features, to_pull, stage.bind_map.mT)
    to_slots = g + to_own
    to_slots.view(-1, d).index_add_(0, _rows(context), to_other.reshape(-1, d))
    if stage.shared:
        to_slots += to_features
        return Gradients(to_slots.view(slots.shape), None, *to_maps, *to_weights)
    shaped = to_slots.view(slots.shape), to_features.view(features.shape)
    return Gradients(*shaped, *to_maps, *to_weights)


def trace(
    stage: Stage,
    scores: Float[Tensor, "*S B M N"],
    matches: Float[Tensor, "*S B M M"],
    won: Bool[Tensor, "*S B M"],
    rule: Int[Tensor, "*S B M"],
    context: Int[Tensor, "*S B M"],
    fires: Tensor | None,
    bound: Tensor | None,
    *kept: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both scores, then the rule that fired on each slot and its context, -1 where none did."""
    bound = won if bound is None else won & bound
    return scores, matches, torch.where(won, rule, -1), torch.where(bound, context, -1)


def _noise(stage: Stage) -> tuple[Tensor, Tensor, Tensor]:
    """For the bids (M, 2), the rules (M, N) and the contexts (M, M)."""
    m, n = stage.slots.shape[-2], stage.weight_in.shape[-3]
    sizes = [2 * m, m * n, m * m]
    noise = gumbel(stage.uniform[..., : sum(sizes)]).split(sizes, -1)
    bids, rules, contexts = (x.unflatten(-1, (m, -1)) for x in noise)
    return bids, rules, contexts


def _rows(context: Int[Tensor, "*S B M"]) -> Int[Tensor, "S*B*M"]:
    """Positions of the contexts among all slots."""
    rows, m = context.numel(), context.shape[-1]
    starts = torch.arange(0, rows, m, device=context.device)
    return (context.view(-1, m) + starts.unsqueeze(-1)).view(-1)
