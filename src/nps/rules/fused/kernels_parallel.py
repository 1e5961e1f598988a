# mypy: ignore-errors
"""Triton kernels of Algorithm 2: what is chosen, its gradient, and the change of the slots.

A program takes one element of the batch, its M slots in registers, and goes through the rules and
the other slots in loops. The product with the binding matrix, for all slots, is not done here.
"""

import triton
import triton.language as tl

from nps.rules.fused.kernels import (
    first_best_of_each,
    gumbel,
    read,
    score_gradient,
    score_slots,
    softmax_gradient,
)


@triton.jit(do_not_specialize=["B", "N", "uniform_stride"])
def choose_each(
    slots, rule_map, pull, uniform, allowed, dropout, scores, matches, won, rule, context,
    noisy_bids, noisy, noisy_matches, x, B, N, uniform_stride,
    M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, NP: tl.constexpr,
    DP: tl.constexpr, SELF_CONTEXT: tl.constexpr, ALL: tl.constexpr, DROPS: tl.constexpr,
    DROP_TENSOR: tl.constexpr,
):  # fmt: skip
    """Steps 2 to 4: which slots are won, by which rule, with which context, and both slots."""
    row = tl.program_id(0).to(tl.int64)
    model = row // B
    ms, js = tl.arange(0, MP), tl.arange(0, MP)[None, :]
    rows, ns, ds = ms[:, None], tl.arange(0, NP)[None, :], tl.arange(0, DP)[None, :]
    of_slot, of_pair, of_match = (rows < M) & (ds < D), (rows < M) & (ns < N), (rows < M) & (js < M)
    slots += row * M * D
    uniform += row * uniform_stride
    v = tl.load(slots + rows * D + ds, mask=of_slot, other=0.0)

    key = tl.load(rule_map + model * (N + 2) * D + ds, mask=ds < D, other=0.0)
    bid = tl.sum(v * key, 1) + gumbel(tl.load(uniform + 2 * ms, mask=ms < M, other=0.5))
    key = tl.load(rule_map + (model * (N + 2) + 1) * D + ds, mask=ds < D, other=0.0)
    null = tl.sum(v * key, 1) + gumbel(tl.load(uniform + 2 * ms + 1, mask=ms < M, other=0.5))
    tl.store(noisy_bids + row * 2 * M + 2 * ms, bid, mask=ms < M)
    tl.store(noisy_bids + row * 2 * M + 2 * ms + 1, null, mask=ms < M)
    tl.store(won + row * M + ms, bid >= null, mask=ms < M)

    score = score_slots(v, rule_map, model * (N + 2) + 2, ds, ns, N, D)
    pairs = rows * N + ns
    tl.store(scores + row * M * N + pairs, score, mask=of_pair)
    if DROPS:
        p = read(dropout, model, DROP_TENSOR)
        drop = tl.load(uniform + M * (2 + N + M) + pairs, mask=of_pair, other=0.5)
        score = tl.where(drop < p, 0.0, score / (1.0 - p))
    value = score + gumbel(tl.load(uniform + 2 * M + pairs, mask=of_pair, other=0.5))
    if not ALL:
        may = tl.load(allowed + model * N + ns, mask=ns < N, other=0) != 0
        value = tl.where(may, value, -1e25)
    tl.store(noisy + row * M * N + pairs, value, mask=of_pair)
    best = first_best_of_each(tl.where(ns < N, value, -float("inf")), ns, N)
    tl.store(rule + row * M + ms, best.to(tl.int64), mask=ms < M)

    pulled = tl.load(pull + row * M * D + rows * D + ds, mask=of_slot, other=0.0)
    match = score_slots(pulled, slots, 0, ds, js, M, D)
    tl.store(matches + row * M * M + rows * M + js, match, mask=of_match)
    numbers = uniform + M * (2 + N) + rows * M + js
    value = match + gumbel(tl.load(numbers, mask=of_match, other=0.5))
    if not SELF_CONTEXT:
        value = tl.where(rows == js, -1e25, value)
    tl.store(noisy_matches + row * M * M + rows * M + js, value, mask=of_match)
    best = first_best_of_each(tl.where(js < M, value, -float("inf")), js, M)
    tl.store(context + row * M + ms, best.to(tl.int64), mask=ms < M)

    other = tl.load(slots + best[:, None] * D + ds, mask=of_slot, other=0.0)
    x += (row * M + rows) * 2 * D + ds
    tl.store(x, v, mask=of_slot)
    tl.store(x + D, other, mask=of_slot)


@triton.jit(do_not_specialize=["B", "N", "uniform_stride"])
def choose_each_gradient(
    slots, rule_map, uniform, temperature, dropout, context, noisy_bids, noisy, noisy_matches,
    pull, update, g, to_rule_scores, to_context_scores, to_x, to_rule, to_slots, to_scores,
    to_pull, B, N, uniform_stride,
    M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, NP: tl.constexpr,
    DP: tl.constexpr, TEMPERATURE_TENSOR: tl.constexpr, DROPS: tl.constexpr,
    DROP_TENSOR: tl.constexpr, RULE_SCORES: tl.constexpr, CONTEXT_SCORES: tl.constexpr,
):  # fmt: skip
    """To the slots (but for what goes through `pull`), to bids and scores, and to `pull`."""
    row = tl.program_id(0).to(tl.int64)
    model = row // B
    ms, js = tl.arange(0, MP), tl.arange(0, MP)[None, :]
    rows, ns, ds = ms[:, None], tl.arange(0, NP)[None, :], tl.arange(0, DP)[None, :]
    of_slot, of_pair, of_match = (rows < M) & (ds < D), (rows < M) & (ns < N), (rows < M) & (js < M)
    slots += row * M * D
    pull += row * M * D
    to_x += row * M * 2 * D
    first = model * (N + 2)
    heat = read(temperature, model, TEMPERATURE_TENSOR)

    to_other = tl.load(to_x + rows * 2 * D + D + ds, mask=of_slot, other=0.0)
    to_context = score_slots(to_other, slots, 0, ds, js, M, D)
    matched = row * M * M + rows * M + js
    noisy_match = tl.load(noisy_matches + matched, mask=of_match, other=0.0)
    to_match = softmax_gradient(to_context, noisy_match, of_match, heat)
    if CONTEXT_SCORES:
        to_match += tl.load(to_context_scores + matched, mask=of_match, other=0.0)
    pulled = score_gradient(to_match, slots, 0, ds, js, M, D)
    places = row * M * D + rows * D + ds
    tl.store(to_pull + places, pulled, mask=of_slot)

    grad = tl.load(g + places, mask=of_slot, other=0.0)
    to_won = tl.sum(grad * tl.load(update + places, mask=of_slot, other=0.0), 1)
    bid = tl.load(noisy_bids + row * 2 * M + 2 * ms, mask=ms < M, other=0.0)
    null = tl.load(noisy_bids + row * 2 * M + 2 * ms + 1, mask=ms < M, other=0.0)
    soft = 1.0 / (1.0 + tl.exp((null - bid) / heat))
    to_bid = soft * (1.0 - soft) * to_won / heat
    pairs = row * M * N + rows * N + ns
    to_choice = tl.load(to_rule + pairs, mask=of_pair, other=0.0)
    noise = tl.load(noisy + pairs, mask=of_pair, other=0.0)
    to_score = softmax_gradient(to_choice, noise, of_pair, heat)
    if DROPS:
        p = read(dropout, model, DROP_TENSOR)
        numbers = uniform + row * uniform_stride + M * (2 + N + M)
        drop = tl.load(numbers + rows * N + ns, mask=of_pair, other=0.5)
        to_score = tl.where(drop < p, 0.0, to_score / (1.0 - p))
    if RULE_SCORES:
        to_score += tl.load(to_rule_scores + pairs, mask=of_pair, other=0.0)
    to_scores += row * M * (N + 2)
    tl.store(to_scores + ms * (N + 2), to_bid, mask=ms < M)
    tl.store(to_scores + ms * (N + 2) + 1, -to_bid, mask=ms < M)
    tl.store(to_scores + rows * (N + 2) + 2 + ns, to_score, mask=of_pair)

    grad += tl.load(to_x + rows * 2 * D + ds, mask=of_slot, other=0.0)
    grad += to_bid[:, None] * tl.load(rule_map + first * D + ds, mask=ds < D, other=0.0)
    grad -= to_bid[:, None] * tl.load(rule_map + (first + 1) * D + ds, mask=ds < D, other=0.0)
    grad += score_gradient(to_score, rule_map, first + 2, ds, ns, N, D)
    grad += score_gradient(tl.trans(to_match), pull, 0, ds, js, M, D)
    for m in range(M):
        at = tl.load(context + row * M + m)
        other = tl.load(to_x + m * 2 * D + D + ds, mask=ds < D, other=0.0)
        grad += tl.where(rows == at, other, 0.0)
    tl.store(to_slots + places, grad, mask=of_slot)


@triton.jit(do_not_specialize=["B", "N"])
def change_each(
    slots, won, rule, raw, bias_out, new, update, B, N,
    M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, DP: tl.constexpr,
):  # fmt: skip
    """The update with its bias, and the slots with it where the rules have won."""
    row = tl.program_id(0).to(tl.int64)
    rows, ds = tl.arange(0, MP)[:, None], tl.arange(0, DP)[None, :]
    inside = (rows < M) & (ds < D)
    owner = row // B * N + tl.load(rule + row * M + rows, mask=rows < M, other=0)
    places = row * M * D + rows * D + ds
    change = tl.load(raw + places, mask=inside, other=0.0)
    change += tl.load(bias_out + owner * D + ds, mask=inside, other=0.0)
    tl.store(update + places, change, mask=inside)
    v = tl.load(slots + places, mask=inside, other=0.0)
    wins = tl.load(won + row * M + rows, mask=rows < M, other=0) != 0
    tl.store(new + places, tl.where(wins, v + change, v), mask=inside)
