# mypy: ignore-errors
"""Triton kernels of Algorithm 2: what is chosen, and its gradient.

A program takes one element of the batch, its M slots in registers, and goes through the rules and
the other slots in loops. The product with the binding matrix, for all slots, is not done here.
"""

import triton
import triton.language as tl

from nps.kernels.rules.triton_shared import (
    first_best_of_each,
    gumbel,
    read,
    score_gradient,
    score_slots,
    softmax_gradient,
)


@triton.jit(do_not_specialize=["uniform", "B", "N", "uniform_stride", "handicap"])
def choose_each(
    slots, features, rule_map, pull, uniform, slot_mask, allowed, dropout, handicap,
    new, scores, matches, rule, context, target, noisy_bids, noisy, noisy_matches, x,
    B, N, uniform_stride,
    M: tl.constexpr, D: tl.constexpr, F: tl.constexpr, MP: tl.constexpr, NP: tl.constexpr,
    DP: tl.constexpr, FP: tl.constexpr, SELF_CONTEXT: tl.constexpr, MASKED: tl.constexpr,
    SOME: tl.constexpr, DROPS: tl.constexpr, DROP_TENSOR: tl.constexpr,
):  # fmt: skip
    """Steps 2 to 4: which slots are won, by which rule, with which context, and both slots.

    `new` begins as a copy of the slots; `target` is a slot's position if it is to change, or -1.
    """
    row = tl.program_id(0).to(tl.int64)
    model = row // B
    ms, js = tl.arange(0, MP), tl.arange(0, MP)[None, :]
    rows, ns = ms[:, None], tl.arange(0, NP)[None, :]
    ds, fs = tl.arange(0, DP)[None, :], tl.arange(0, FP)[None, :]
    of_slot, of_feature = (rows < M) & (ds < D), (rows < M) & (fs < F)
    of_pair, of_match = (rows < M) & (ns < N), (rows < M) & (js < M)
    slots += row * M * D
    features += row * M * F
    uniform += row * uniform_stride
    own = tl.load(slots + rows * D + ds, mask=of_slot, other=0.0)
    tl.store(new + row * M * D + rows * D + ds, own, mask=of_slot)
    v = tl.load(features + rows * F + fs, mask=of_feature, other=0.0)

    key = tl.load(rule_map + model * (N + 2) * F + fs, mask=fs < F, other=0.0)
    bid = tl.sum(v * key, 1) + gumbel(tl.load(uniform + 2 * ms, mask=ms < M, other=0.5))
    key = tl.load(rule_map + (model * (N + 2) + 1) * F + fs, mask=fs < F, other=0.0)
    null = tl.sum(v * key, 1) + gumbel(tl.load(uniform + 2 * ms + 1, mask=ms < M, other=0.5))
    null -= handicap
    tl.store(noisy_bids + row * 2 * M + 2 * ms, bid, mask=ms < M)
    tl.store(noisy_bids + row * 2 * M + 2 * ms + 1, null, mask=ms < M)
    won = bid >= null

    score = score_slots(v, rule_map, model * (N + 2) + 2, fs, ns, N, F)
    pairs = rows * N + ns
    tl.store(scores + row * M * N + pairs, score, mask=of_pair)
    if DROPS:
        p = read(dropout, model, DROP_TENSOR)
        drop = tl.load(uniform + M * (2 + N + M) + pairs, mask=of_pair, other=0.5)
        score = tl.where(drop < p, 0.0, score / (1.0 - p))
    value = score + gumbel(tl.load(uniform + 2 * M + pairs, mask=of_pair, other=0.5))
    if MASKED:
        kept = tl.load(slot_mask + row * M + ms, mask=ms < M, other=0) != 0
        value = tl.where(kept[:, None], tl.maximum(value, -1e20), -1e25)
    if SOME:
        may = tl.load(allowed + model * N + ns, mask=ns < N, other=0) != 0
        value = tl.where(may, value, -1e25)
    tl.store(noisy + row * M * N + pairs, value, mask=of_pair)
    value = tl.where(ns < N, value, -float("inf"))
    best = first_best_of_each(value, ns, N)
    tl.store(rule + row * M + ms, best, mask=ms < M)
    if MASKED or SOME:
        won = won & (tl.max(value, 1) > -1e24)
    target += row * M + ms
    tl.store(target, tl.where(won, row * M + ms, -1).to(tl.int32), mask=ms < M)

    pulled = tl.load(pull + row * M * F + rows * F + fs, mask=of_feature, other=0.0)
    match = score_slots(pulled, features, 0, fs, js, M, F)
    tl.store(matches + row * M * M + rows * M + js, match, mask=of_match)
    numbers = uniform + M * (2 + N) + rows * M + js
    value = match + gumbel(tl.load(numbers, mask=of_match, other=0.5))
    if MASKED:
        column = tl.load(slot_mask + row * M + js, mask=js < M, other=0) != 0
        value = tl.where(column, tl.maximum(value, -1e20), -1e25)
    if not SELF_CONTEXT:
        value = tl.where(rows == js, -1e25, value)
    tl.store(noisy_matches + row * M * M + rows * M + js, value, mask=of_match)
    value = tl.where(js < M, value, -float("inf"))
    best = first_best_of_each(value, js, M)
    if MASKED or not SELF_CONTEXT:
        best = tl.where(tl.max(value, 1) > -1e24, best, -1)
    tl.store(context + row * M + ms, best, mask=ms < M)

    bound = of_slot & (best >= 0)[:, None]
    other = tl.load(slots + best[:, None] * D + ds, mask=bound, other=0.0)
    x += (row * M + rows) * 2 * D + ds
    tl.store(x, own, mask=of_slot)
    tl.store(x + D, other, mask=of_slot)


@triton.jit(do_not_specialize=["uniform", "B", "N", "uniform_stride", "later"])
def choose_each_gradient(
    slots, features, rule_map, uniform, temperature, dropout, context, noisy_bids, noisy,
    noisy_matches, pull, update, g, to_rule_scores, to_context_scores, to_x, to_rule, to_slots,
    to_features, to_scores, to_pull, B, N, uniform_stride, later,
    M: tl.constexpr, D: tl.constexpr, F: tl.constexpr, MP: tl.constexpr, NP: tl.constexpr,
    DP: tl.constexpr, FP: tl.constexpr, SHARED: tl.constexpr, RESTRICTED: tl.constexpr,
    TEMPERATURE_TENSOR: tl.constexpr, DROPS: tl.constexpr, DROP_TENSOR: tl.constexpr,
    RULE_SCORES: tl.constexpr, CONTEXT_SCORES: tl.constexpr,
):  # fmt: skip
    """To slots and features (but for what goes through `pull`), to bids and scores, to `pull`."""
    row = tl.program_id(0).to(tl.int64)
    model = row // B
    ms, js = tl.arange(0, MP), tl.arange(0, MP)[None, :]
    rows, ns = ms[:, None], tl.arange(0, NP)[None, :]
    ds, fs = tl.arange(0, DP)[None, :], tl.arange(0, FP)[None, :]
    of_slot, of_feature = (rows < M) & (ds < D), (rows < M) & (fs < F)
    of_pair, of_match = (rows < M) & (ns < N), (rows < M) & (js < M)
    slots += row * M * D
    features += row * M * F
    pull += row * M * F
    to_x += row * M * 2 * D
    first = model * (N + 2)
    heat = read(temperature, model, TEMPERATURE_TENSOR)

    to_other = tl.load(to_x + rows * 2 * D + D + ds, mask=of_slot, other=0.0)
    to_context = score_slots(to_other, slots, 0, ds, js, M, D)
    matched = row * M * M + rows * M + js
    noisy_match = tl.load(noisy_matches + matched, mask=of_match, other=0.0)
    to_match = softmax_gradient(to_context, noisy_match, of_match, heat)
    to_match = tl.where(noisy_match > -1e24, to_match, 0.0)
    if CONTEXT_SCORES:
        to_match += tl.load(to_context_scores + matched, mask=of_match, other=0.0)
    pulled = score_gradient(to_match, features, 0, fs, js, M, F)
    tl.store(to_pull + row * M * F + rows * F + fs, pulled, mask=of_feature)

    places = row * M * D + rows * D + ds
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
    if RESTRICTED:
        to_score = tl.where(noise > -1e24, to_score, 0.0)
        some = tl.max(tl.where(of_pair, noise, -1e25), 1) > -1e24
        to_bid = tl.where(some, to_bid, 0.0)
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

    to_seen = to_bid[:, None] * tl.load(rule_map + first * F + fs, mask=fs < F, other=0.0)
    to_seen -= to_bid[:, None] * tl.load(rule_map + (first + 1) * F + fs, mask=fs < F, other=0.0)
    to_seen += score_gradient(to_score, rule_map, first + 2, fs, ns, N, F)
    to_seen += score_gradient(tl.trans(to_match), pull, 0, fs, js, M, F)
    grad += tl.load(to_x + rows * 2 * D + ds, mask=of_slot, other=0.0)
    for m in range(M):
        at = tl.load(context + row * M + m)
        other = tl.load(to_x + m * 2 * D + D + ds, mask=ds < D, other=0.0)
        grad += tl.where(rows == at, other, 0.0)
    if SHARED:
        grad += to_seen
    else:
        to_features += row * M * F + rows * F + fs
        to_seen += tl.load(to_features, mask=of_feature & (later > 0), other=0.0)
        tl.store(to_features, to_seen, mask=of_feature)
    tl.store(to_slots + places, grad, mask=of_slot)
