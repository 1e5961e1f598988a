# mypy: ignore-errors
"""Triton kernels of Algorithm 1: what is chosen, its gradient, and the change of the slots.

A program takes one element of the batch, its M slots in registers, and goes through the rules and
the lines of the binding matrix in loops.
"""

import triton
import triton.language as tl

from nps.rules.fused.kernels import (
    first_best,
    gumbel,
    read,
    score_gradient,
    score_slots,
    softmax_gradient,
    softmax_gradient_of_all,
)

CHUNK = tl.constexpr(16)


@triton.jit(do_not_specialize=["B", "N", "uniform_stride"])
def choose_one(
    slots, rule_map, bind_map, uniform, allowed, dropout, scores, matches, primary, rule, context,
    noisy, noisy_matches, pull, x, B, N, uniform_stride,
    M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, NP: tl.constexpr,
    DP: tl.constexpr, SELF_CONTEXT: tl.constexpr, ALL: tl.constexpr, DROPS: tl.constexpr,
    DROP_TENSOR: tl.constexpr,
):  # fmt: skip
    """Steps 2 and 3: scores, the pair of slot and rule, the context, and both slots."""
    row = tl.program_id(0).to(tl.int64)
    model = row // B
    ms = tl.arange(0, MP)
    rows, ns, ds = ms[:, None], tl.arange(0, NP)[None, :], tl.arange(0, DP)[None, :]
    of_slot, of_pair = (rows < M) & (ds < D), (rows < M) & (ns < N)
    slots += row * M * D
    uniform += row * uniform_stride
    v = tl.load(slots + rows * D + ds, mask=of_slot, other=0.0)

    score = score_slots(v, rule_map, model * N, ds, ns, N, D)
    pairs = rows * N + ns
    tl.store(scores + row * M * N + pairs, score, mask=of_pair)
    noise = gumbel(tl.load(uniform + pairs, mask=of_pair, other=0.5))
    if DROPS:
        p = read(dropout, model, DROP_TENSOR)
        drop = tl.load(uniform + M * N + M + pairs, mask=of_pair, other=0.5)
        score = tl.where(drop < p, 0.0, score / (1.0 - p))
    choosable = of_pair
    if not ALL:
        choosable = of_pair & (tl.load(allowed + model * N + ns, mask=ns < N, other=0) != 0)
    value = tl.where(choosable, score + noise, -1e25)
    tl.store(noisy + row * M * N + pairs, value, mask=of_pair)
    pair = first_best(tl.where(of_pair, value, -float("inf")), pairs, M * N)
    at = pair // N
    tl.store(primary + row, at.to(tl.int64))
    tl.store(rule + row, (pair - at * N).to(tl.int64))

    pulled = tl.zeros([1, DP], tl.float32)
    for k in range(0, D, CHUNK):
        ks = k + tl.arange(0, CHUNK)[:, None]
        part = tl.load(slots + at * D + ks, mask=ks < D, other=0.0)
        matrix = tl.load(bind_map + (model * D + ks) * D + ds, mask=(ks < D) & (ds < D), other=0.0)
        pulled += tl.sum(part * matrix, 0)[None, :]
    tl.store(pull + row * D + ds, pulled, mask=ds < D)
    match = tl.sum(v * pulled, 1)
    tl.store(matches + row * M + ms, match, mask=ms < M)
    value = match + gumbel(tl.load(uniform + M * N + ms, mask=ms < M, other=0.5))
    if not SELF_CONTEXT:
        value = tl.where(ms == at, -1e25, value)
    tl.store(noisy_matches + row * M + ms, value, mask=ms < M)
    best = first_best(tl.where(rows < M, value[:, None], -float("inf")), rows, M)
    tl.store(context + row, best.to(tl.int64))

    own = tl.load(slots + at * D + ds, mask=ds < D, other=0.0)
    other = tl.load(slots + best * D + ds, mask=ds < D, other=0.0)
    tl.store(x + row * 2 * D + ds, own, mask=ds < D)
    tl.store(x + row * 2 * D + D + ds, other, mask=ds < D)


@triton.jit(do_not_specialize=["B", "N", "uniform_stride"])
def choose_one_gradient(
    slots, rule_map, bind_map, uniform, temperature, dropout, primary, context, noisy,
    noisy_matches, pull, update, g, to_rule_scores, to_context_scores, to_x, to_rule, to_slots,
    to_scores, to_pull, B, N, uniform_stride,
    M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, NP: tl.constexpr,
    DP: tl.constexpr, TEMPERATURE_TENSOR: tl.constexpr, DROPS: tl.constexpr,
    DROP_TENSOR: tl.constexpr, RULE_SCORES: tl.constexpr, CONTEXT_SCORES: tl.constexpr,
):  # fmt: skip
    """From the gradients to both slots and to every rule to those of slots, scores and pull."""
    row = tl.program_id(0).to(tl.int64)
    model = row // B
    ms = tl.arange(0, MP)
    rows, ns, ds = ms[:, None], tl.arange(0, NP)[None, :], tl.arange(0, DP)[None, :]
    of_slot, of_pair = (rows < M) & (ds < D), (rows < M) & (ns < N)
    slots += row * M * D
    heat = read(temperature, model, TEMPERATURE_TENSOR)
    at = tl.load(primary + row)
    best = tl.load(context + row)
    v = tl.load(slots + rows * D + ds, mask=of_slot, other=0.0)
    to_own = tl.load(to_x + row * 2 * D + ds, mask=ds < D, other=0.0)
    to_other = tl.load(to_x + row * 2 * D + D + ds, mask=ds < D, other=0.0)

    columns = tl.arange(0, MP)[None, :]
    noisy_match = tl.load(noisy_matches + row * M + columns, mask=columns < M, other=0.0)
    to_context = tl.sum(v * to_other, 1)[None, :]
    to_match = softmax_gradient(to_context, noisy_match, columns < M, heat)
    if CONTEXT_SCORES:
        to_match += tl.load(to_context_scores + row * M + columns, mask=columns < M, other=0.0)
    to_match = tl.reshape(to_match, [MP, 1])

    for k in range(0, D, CHUNK):
        ks = k + tl.arange(0, CHUNK)[None, :]
        part = tl.load(slots + rows * D + ks, mask=(rows < M) & (ks < D), other=0.0)
        pulled = tl.sum(part * to_match, 0)[None, :]
        tl.store(to_pull + row * D + ks, pulled, mask=ks < D)
        lines = tl.arange(0, DP)[:, None]
        matrix = tl.load(
            bind_map + (model * D + lines) * D + ks, mask=(lines < D) & (ks < D), other=0.0
        )
        to_own += tl.sum(matrix * pulled, 1)[None, :]

    grad = tl.load(g + row * M * D + rows * D + ds, mask=of_slot, other=0.0)
    updated = tl.load(update + row * D + ds, mask=ds < D, other=0.0)
    to_primary = tl.sum(grad * updated + v * to_own, 1)
    to_pair = to_primary[:, None] + tl.load(to_rule + row * N + ns, mask=ns < N, other=0.0)
    pairs = row * M * N + rows * N + ns
    noise = tl.load(noisy + pairs, mask=of_pair, other=0.0)
    to_score = softmax_gradient_of_all(to_pair, noise, of_pair, heat)
    if DROPS:
        p = read(dropout, model, DROP_TENSOR)
        numbers = uniform + row * uniform_stride + M * N + M
        drop = tl.load(numbers + rows * N + ns, mask=of_pair, other=0.5)
        to_score = tl.where(drop < p, 0.0, to_score / (1.0 - p))
    if RULE_SCORES:
        to_score += tl.load(to_rule_scores + pairs, mask=of_pair, other=0.0)
    tl.store(to_scores + pairs, to_score, mask=of_pair)

    grad += tl.where(rows == at, to_own, 0.0) + tl.where(rows == best, to_other, 0.0)
    grad += to_match * tl.load(pull + row * D + ds, mask=ds < D, other=0.0)
    grad += score_gradient(to_score, rule_map, model * N, ds, ns, N, D)
    tl.store(to_slots + row * M * D + rows * D + ds, grad, mask=of_slot)


@triton.jit(do_not_specialize=["B", "N"])
def change_one(
    slots, primary, rule, raw, bias_out, new, update, B, N,
    M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, DP: tl.constexpr,
):  # fmt: skip
    """The update with its bias, and the slots with it."""
    row = tl.program_id(0).to(tl.int64)
    rows, ds = tl.arange(0, MP)[:, None], tl.arange(0, DP)[None, :]
    of_slot = (rows < M) & (ds < D)
    owner = row // B * N + tl.load(rule + row)
    change = tl.load(raw + row * D + ds, mask=ds < D, other=0.0)
    change += tl.load(bias_out + owner * D + ds, mask=ds < D, other=0.0)
    tl.store(update + row * D + ds, change, mask=ds < D)
    v = tl.load(slots + row * M * D + rows * D + ds, mask=of_slot, other=0.0)
    v = tl.where(rows == tl.load(primary + row), v + change, v)
    tl.store(new + row * M * D + rows * D + ds, v, mask=of_slot)
