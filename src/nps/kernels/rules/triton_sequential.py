# mypy: ignore-errors
"""Triton kernels of Algorithm 1: what is chosen, and its gradient.

A program takes one element of the batch, its M slots in registers, and goes through the rules and
the lines of the binding matrix in loops.
"""

import triton
import triton.language as tl

from nps.kernels.rules.triton_shared import (
    first_best,
    gumbel,
    read,
    score_gradient,
    score_slots,
    softmax_gradient,
    softmax_gradient_of_all,
)

CHUNK = tl.constexpr(16)


@triton.jit(do_not_specialize=["uniform", "B", "N", "uniform_stride"])
def choose_one(
    slots, features, rule_map, bind_map, uniform, slot_mask, allowed, dropout,
    new, scores, matches, primary, rule, context, target, noisy, noisy_matches, pull, own, x,
    B, N, uniform_stride,
    M: tl.constexpr, D: tl.constexpr, F: tl.constexpr, MP: tl.constexpr, NP: tl.constexpr,
    DP: tl.constexpr, FP: tl.constexpr, SELF_CONTEXT: tl.constexpr, MASKED: tl.constexpr,
    SOME: tl.constexpr, DROPS: tl.constexpr, DROP_TENSOR: tl.constexpr,
):  # fmt: skip
    """Steps 2 and 3: scores, the pair of slot and rule, the context, and both slots.

    `new` begins as a copy of the slots; `target` is the position of the slot to change, or -1.
    """
    row = tl.program_id(0).to(tl.int64)
    model = row // B
    ms = tl.arange(0, MP)
    rows, ns = ms[:, None], tl.arange(0, NP)[None, :]
    ds, fs = tl.arange(0, DP)[None, :], tl.arange(0, FP)[None, :]
    of_slot, of_pair = (rows < M) & (ds < D), (rows < M) & (ns < N)
    slots += row * M * D
    features += row * M * F
    uniform += row * uniform_stride
    places = rows * D + ds
    tl.store(new + row * M * D + places, tl.load(slots + places, mask=of_slot), mask=of_slot)
    v = tl.load(features + rows * F + fs, mask=(rows < M) & (fs < F), other=0.0)

    score = score_slots(v, rule_map, model * N, fs, ns, N, F)
    pairs = rows * N + ns
    tl.store(scores + row * M * N + pairs, score, mask=of_pair)
    noise = gumbel(tl.load(uniform + pairs, mask=of_pair, other=0.5))
    if DROPS:
        p = read(dropout, model, DROP_TENSOR)
        drop = tl.load(uniform + M * N + M + pairs, mask=of_pair, other=0.5)
        score = tl.where(drop < p, 0.0, score / (1.0 - p))
    value = score + noise
    if MASKED:
        kept = tl.load(slot_mask + row * M + ms, mask=ms < M, other=0) != 0
        value = tl.where(kept[:, None], tl.maximum(value, -1e20), -1e25)
    if SOME:
        may = tl.load(allowed + model * N + ns, mask=ns < N, other=0) != 0
        value = tl.where(may, value, -1e25)
    tl.store(noisy + row * M * N + pairs, value, mask=of_pair)
    value = tl.where(of_pair, value, -float("inf"))
    pair = first_best(value, pairs, M * N)
    at = pair // N
    place = row * M + at
    if MASKED or SOME:
        place = tl.where(tl.max(tl.max(value, 1), 0) > -1e24, place, -1)
    tl.store(primary + row, at)
    tl.store(rule + row, pair - at * N)
    tl.store(target + row, place.to(tl.int32))

    pulled = tl.zeros([1, FP], tl.float32)
    for k in range(0, F, CHUNK):
        ks = k + tl.arange(0, CHUNK)[:, None]
        part = tl.load(features + at * F + ks, mask=ks < F, other=0.0)
        matrix = tl.load(bind_map + (model * F + ks) * F + fs, mask=(ks < F) & (fs < F), other=0.0)
        pulled += tl.sum(part * matrix, 0)[None, :]
    tl.store(pull + row * F + fs, pulled, mask=fs < F)
    tl.store(own + row * F + fs, tl.load(features + at * F + fs, mask=fs < F), mask=fs < F)
    match = tl.sum(v * pulled, 1)
    tl.store(matches + row * M + ms, match, mask=ms < M)
    value = match + gumbel(tl.load(uniform + M * N + ms, mask=ms < M, other=0.5))
    if MASKED:
        value = tl.where(kept, tl.maximum(value, -1e20), -1e25)
    if not SELF_CONTEXT:
        value = tl.where(ms == at, -1e25, value)
    tl.store(noisy_matches + row * M + ms, value, mask=ms < M)
    value = tl.where(rows < M, value[:, None], -float("inf"))
    best = first_best(value, rows, M)
    if MASKED or not SELF_CONTEXT:
        best = tl.where(tl.max(tl.max(value, 1), 0) > -1e24, best, -1)
    tl.store(context + row, best)

    acting = tl.load(slots + at * D + ds, mask=ds < D, other=0.0)
    other = tl.load(slots + best * D + ds, mask=(ds < D) & (best >= 0), other=0.0)
    tl.store(x + row * 2 * D + ds, acting, mask=ds < D)
    tl.store(x + row * 2 * D + D + ds, other, mask=ds < D)


@triton.jit(do_not_specialize=["uniform", "B", "N", "uniform_stride", "later"])
def choose_one_gradient(
    slots, features, rule_map, bind_map, uniform, temperature, dropout, primary, context, noisy,
    noisy_matches, pull, update, g, to_rule_scores, to_context_scores, to_x, to_rule, to_slots,
    to_features, to_scores, to_pull, B, N, uniform_stride, later,
    M: tl.constexpr, D: tl.constexpr, F: tl.constexpr, MP: tl.constexpr, NP: tl.constexpr,
    DP: tl.constexpr, FP: tl.constexpr, SHARED: tl.constexpr, RESTRICTED: tl.constexpr,
    TEMPERATURE_TENSOR: tl.constexpr, DROPS: tl.constexpr, DROP_TENSOR: tl.constexpr,
    RULE_SCORES: tl.constexpr, CONTEXT_SCORES: tl.constexpr,
):  # fmt: skip
    """From the gradients to both slots and to every rule to those of slots, scores and pull."""
    row = tl.program_id(0).to(tl.int64)
    model = row // B
    ms = tl.arange(0, MP)
    rows, ns = ms[:, None], tl.arange(0, NP)[None, :]
    ds, fs = tl.arange(0, DP)[None, :], tl.arange(0, FP)[None, :]
    of_slot, of_pair = (rows < M) & (ds < D), (rows < M) & (ns < N)
    of_feature = (rows < M) & (fs < F)
    slots += row * M * D
    features += row * M * F
    heat = read(temperature, model, TEMPERATURE_TENSOR)
    at = tl.load(primary + row)
    best = tl.load(context + row)
    v = tl.load(slots + rows * D + ds, mask=of_slot, other=0.0)
    to_acting = tl.load(to_x + row * 2 * D + ds, mask=ds < D, other=0.0)
    to_other = tl.load(to_x + row * 2 * D + D + ds, mask=ds < D, other=0.0)

    columns = tl.arange(0, MP)[None, :]
    noisy_match = tl.load(noisy_matches + row * M + columns, mask=columns < M, other=0.0)
    to_context = tl.sum(v * to_other, 1)[None, :]
    to_match = softmax_gradient(to_context, noisy_match, columns < M, heat)
    to_match = tl.where(noisy_match > -1e24, to_match, 0.0)
    if CONTEXT_SCORES:
        to_match += tl.load(to_context_scores + row * M + columns, mask=columns < M, other=0.0)
    to_match = tl.reshape(to_match, [MP, 1])

    to_own = tl.zeros([1, FP], tl.float32)
    for k in range(0, F, CHUNK):
        ks = k + tl.arange(0, CHUNK)[None, :]
        part = tl.load(features + rows * F + ks, mask=(rows < M) & (ks < F), other=0.0)
        pulled = tl.sum(part * to_match, 0)[None, :]
        tl.store(to_pull + row * F + ks, pulled, mask=ks < F)
        lines = tl.arange(0, FP)[:, None]
        matrix = tl.load(
            bind_map + (model * F + lines) * F + ks, mask=(lines < F) & (ks < F), other=0.0
        )
        to_own += tl.sum(matrix * pulled, 1)[None, :]

    grad = tl.load(g + row * M * D + rows * D + ds, mask=of_slot, other=0.0)
    updated = tl.load(update + row * D + ds, mask=ds < D, other=0.0)
    if SHARED:
        to_acting += to_own
        to_primary = tl.sum(grad * updated + v * to_acting, 1)
    else:
        seen = tl.load(features + rows * F + fs, mask=of_feature, other=0.0)
        to_primary = tl.sum(grad * updated + v * to_acting, 1) + tl.sum(seen * to_own, 1)
    to_pair = to_primary[:, None] + tl.load(to_rule + row * N + ns, mask=ns < N, other=0.0)
    pairs = row * M * N + rows * N + ns
    noise = tl.load(noisy + pairs, mask=of_pair, other=0.0)
    to_score = softmax_gradient_of_all(to_pair, noise, of_pair, heat)
    if RESTRICTED:
        to_score = tl.where(noise > -1e24, to_score, 0.0)
    if DROPS:
        p = read(dropout, model, DROP_TENSOR)
        numbers = uniform + row * uniform_stride + M * N + M
        drop = tl.load(numbers + rows * N + ns, mask=of_pair, other=0.5)
        to_score = tl.where(drop < p, 0.0, to_score / (1.0 - p))
    if RULE_SCORES:
        to_score += tl.load(to_rule_scores + pairs, mask=of_pair, other=0.0)
    tl.store(to_scores + pairs, to_score, mask=of_pair)

    grad += tl.where(rows == at, to_acting, 0.0) + tl.where(rows == best, to_other, 0.0)
    to_seen = to_match * tl.load(pull + row * F + fs, mask=fs < F, other=0.0)
    to_seen += score_gradient(to_score, rule_map, model * N, fs, ns, N, F)
    if SHARED:
        grad += to_seen
    else:
        to_seen += tl.where(rows == at, to_own, 0.0)
        to_features += row * M * F + rows * F + fs
        to_seen += tl.load(to_features, mask=of_feature & (later > 0), other=0.0)
        tl.store(to_features, to_seen, mask=of_feature)
    tl.store(to_slots + row * M * D + rows * D + ds, grad, mask=of_slot)
