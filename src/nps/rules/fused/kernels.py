"""Triton kernels of a fused stage: all that lies between its large products.

A program takes one element of the batch, its M slots in registers, and goes through the rules and
the columns of the matrices in loops; sums are explicit, so float32 stays float32. `launch.py` calls
them. Imported on a GPU only: Triton comes with torch's CUDA builds.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gumbel(uniform):
    inside = tl.minimum(tl.maximum(uniform, 2.9802322387695312e-08), 0.99999994039535522)
    return -tl.log(-tl.log(inside))


@triton.jit
def first_best(values, index, beyond):
    """The first index of the largest value in all of a tile."""
    best = tl.max(tl.max(values, 1), 0)
    found = tl.min(tl.min(tl.where(values == best, index, beyond), 1), 0)
    return tl.minimum(found, beyond - 1)  # NaN equals nothing


@triton.jit
def read(setting, model, ON_DEVICE: tl.constexpr):
    """A number, or one of each model on the device."""
    if ON_DEVICE:
        return tl.load(setting + model)
    else:
        return setting


@triton.jit
def softmax_gradient(grad, noisy, inside, temperature):
    """Over the last dimension: the straight-through gradient to the scores of a choice."""
    logits = tl.minimum(tl.maximum(noisy / temperature, -1e32), 1e32)
    logits = tl.where(inside, logits, -float("inf"))
    soft = tl.exp(logits - tl.max(logits, 1)[:, None])
    soft = tl.where(inside, soft / tl.sum(soft, 1)[:, None], 0.0)
    return soft * (grad - tl.sum(soft * grad, 1)[:, None]) / temperature


@triton.jit
def softmax_gradient_of_all(grad, noisy, inside, temperature):
    """The same where the whole tile is one choice."""
    logits = tl.minimum(tl.maximum(noisy / temperature, -1e32), 1e32)
    logits = tl.where(inside, logits, -float("inf"))
    soft = tl.exp(logits - tl.max(tl.max(logits, 1), 0))
    soft = tl.where(inside, soft / tl.sum(tl.sum(soft, 1), 0), 0.0)
    return soft * (grad - tl.sum(tl.sum(soft * grad, 1), 0)) / temperature


@triton.jit
def score_slots(v, rule_map, first, ds, ns, N: tl.constexpr, D: tl.constexpr):
    """(M, N) scores of slots (M, D), from row `first` of the map on."""
    scores = tl.zeros([v.shape[0], ns.shape[1]], tl.float32)
    for n in range(N):
        key = tl.load(rule_map + (first + n) * D + ds, mask=ds < D, other=0.0)
        scores = tl.where(ns == n, tl.sum(v * key, 1)[:, None], scores)
    return scores


@triton.jit
def score_gradient(to_scores, rule_map, first, ds, ns, N: tl.constexpr, D: tl.constexpr):
    """(M, D) gradient to the slots of (M, N) gradients to their scores."""
    to_slots = tl.zeros([to_scores.shape[0], ds.shape[1]], tl.float32)
    for n in range(N):
        key = tl.load(rule_map + (first + n) * D + ds, mask=ds < D, other=0.0)
        column = tl.sum(tl.where(ns == n, to_scores, 0.0), 1)
        to_slots += column[:, None] * key
    return to_slots


# -- Algorithm 1 -----------------------------------------------------------------------------------


@triton.jit
def choose_one(
    slots, rule_map, bind_map, uniform, allowed, dropout,
    scores, noisy, matches, noisy_matches, primary, rule, context, pull, x,
    B, uniform_stride,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
    MP: tl.constexpr, NP: tl.constexpr, DP: tl.constexpr, CHUNK: tl.constexpr,
    SELF_CONTEXT: tl.constexpr, ALL: tl.constexpr, DROPS: tl.constexpr, DROP_TENSOR: tl.constexpr,
):
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
        matrix = tl.load(
            bind_map + (model * D + ks) * D + ds, mask=(ks < D) & (ds < D), other=0.0
        )
        pulled += tl.sum(part * matrix, 0)[None, :]
    tl.store(pull + row * D + ds, pulled, mask=ds < D)
    match = tl.sum(v * pulled, 1)
    tl.store(matches + row * M + ms, match, mask=ms < M)
    value = match + gumbel(tl.load(uniform + M * N + ms, mask=ms < M, other=0.5))
    if not SELF_CONTEXT:
        value = tl.where(ms == at, -1e25, value)
    tl.store(noisy_matches + row * M + ms, value, mask=ms < M)
    best = first_best(
        tl.where(rows < M, value[:, None], -float("inf")), rows, M
    )
    tl.store(context + row, best.to(tl.int64))

    own = tl.load(slots + at * D + ds, mask=ds < D, other=0.0)
    other = tl.load(slots + best * D + ds, mask=ds < D, other=0.0)
    tl.store(x + row * 2 * D + ds, own, mask=ds < D)
    tl.store(x + row * 2 * D + D + ds, other, mask=ds < D)


@triton.jit
def choose_one_gradient(
    slots, rule_map, bind_map, uniform, temperature, dropout,
    primary, context, noisy, noisy_matches, pull, update,
    g, to_rule_scores, to_context_scores, to_x, to_rule,
    to_slots, to_scores, to_pull,
    B, uniform_stride,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
    MP: tl.constexpr, NP: tl.constexpr, DP: tl.constexpr, CHUNK: tl.constexpr,
    TEMPERATURE_TENSOR: tl.constexpr, DROPS: tl.constexpr, DROP_TENSOR: tl.constexpr,
    RULE_SCORES: tl.constexpr, CONTEXT_SCORES: tl.constexpr,
):
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


@triton.jit
def change_one(
    slots, primary, rule, raw, bias_out, new, update, B,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, DP: tl.constexpr,
):
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


# -- the rules' hidden layers ----------------------------------------------------------------------


@triton.jit
def hide(
    before, rule, mine, T,
    N: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, ROWS: tl.constexpr,
):
    """ReLU, and zero for the rules that were not chosen."""
    n = tl.program_id(1)
    ts = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    hs = tl.arange(0, HP)[None, :]
    inside = (ts < T) & (hs < H)
    places = (ts.to(tl.int64) * N + n) * H + hs
    chosen = tl.load(rule + ts, mask=ts < T, other=-1) == n
    value = tl.load(before + places, mask=inside & chosen, other=0.0)
    tl.store(mine + places, tl.maximum(value, 0.0), mask=inside)


@triton.jit
def expose(
    passed, before, rule, g, bias_out, to_choice, sums, T, blocks,
    N: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    HP: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr,
):
    """From the gradient to the hidden layer of every rule, if it had been chosen.

    In place of it comes the gradient before the ReLU, zero where a rule was not chosen; and the
    gradient to every choice, and the sums over these rows that are the gradients of the biases.
    """
    block, n = tl.program_id(0), tl.program_id(1)
    model = block // blocks
    ts = block % blocks * ROWS + tl.arange(0, ROWS)[:, None]
    here = ts < T
    ts = model.to(tl.int64) * T + ts
    hs, ds = tl.arange(0, HP)[None, :], tl.arange(0, DP)[None, :]
    places = (ts * N + n) * H + hs
    chosen = tl.load(rule + ts, mask=here, other=-1) == n
    value = tl.load(before + places, mask=here & (hs < H), other=0.0)
    grad = tl.load(passed + places, mask=here & (hs < H), other=0.0)
    outer = tl.load(g + ts * D + ds, mask=here & (ds < D), other=0.0)
    bias = tl.load(bias_out + (model * N + n) * D + ds, mask=ds < D, other=0.0)
    to_this = tl.sum(tl.maximum(value, 0.0) * grad, 1) + tl.sum(outer * bias, 1)
    tl.store(to_choice + ts * N + n, to_this[:, None], mask=here)
    grad = tl.where(chosen & (value > 0), grad, 0.0)
    tl.store(passed + places, grad, mask=here & (hs < H))
    place = sums + (block * N + n) * (H + D)
    tl.store(place + hs, tl.sum(grad, 0)[None, :], mask=hs < H)
    mine = tl.where(chosen, outer, 0.0)
    tl.store(place + H + ds, tl.sum(mine, 0)[None, :], mask=ds < D)
