# mypy: ignore-errors
"""Triton kernels and functions that both algorithms share.

Sums are explicit, so float32 stays float32. `plan.py` launches the kernels, on a GPU only: Triton
comes with torch's CUDA builds.
"""

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
def first_best_of_each(values, index, beyond):
    """The same for each row."""
    best = tl.max(values, 1)[:, None]
    found = tl.min(tl.where(values == best, index, beyond), 1)
    return tl.minimum(found, beyond - 1)


@triton.jit
def read(setting, model, ON_DEVICE: tl.constexpr):
    """A setting: a number, or one for each model on the device."""
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
def score_slots(v, rule_map, first, ds, ns, N, D: tl.constexpr):
    """(M, N) scores of slots (M, D), from row `first` of the map on."""
    scores = tl.zeros([v.shape[0], ns.shape[1]], tl.float32)
    for n in tl.range(0, N, loop_unroll_factor=4):
        key = tl.load(rule_map + (first + n) * D + ds, mask=ds < D, other=0.0)
        scores = tl.where(ns == n, tl.sum(v * key, 1)[:, None], scores)
    return scores


@triton.jit
def score_gradient(to_scores, rule_map, first, ds, ns, N, D: tl.constexpr):
    """(M, D) gradient to the slots of (M, N) gradients to their scores."""
    to_slots = tl.zeros([to_scores.shape[0], ds.shape[1]], tl.float32)
    for n in tl.range(0, N, loop_unroll_factor=4):
        key = tl.load(rule_map + (first + n) * D + ds, mask=ds < D, other=0.0)
        column = tl.sum(tl.where(ns == n, to_scores, 0.0), 1)
        to_slots += column[:, None] * key
    return to_slots


@triton.jit(do_not_specialize=["T", "N"])
def hide(
    before, rule, chosen_layer, T, N, H: tl.constexpr, HP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """ReLU, and zero for the rules that were not chosen."""
    n = tl.program_id(1)
    ts = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    hs = tl.arange(0, HP)[None, :]
    inside = (ts < T) & (hs < H)
    places = (ts.to(tl.int64) * N + n) * H + hs
    chosen = tl.load(rule + ts, mask=ts < T, other=-1) == n
    value = tl.load(before + places, mask=inside & chosen, other=0.0)
    tl.store(chosen_layer + places, tl.maximum(value, 0.0), mask=inside)


@triton.jit(do_not_specialize=["T", "blocks", "N"])
def expose(
    passed, before, rule, outer, bias_out, to_rule, bias_sums, T, blocks, N,
    H: tl.constexpr, D: tl.constexpr, HP: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
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
    given = tl.load(outer + ts * D + ds, mask=here & (ds < D), other=0.0)
    bias = tl.load(bias_out + (model * N + n) * D + ds, mask=ds < D, other=0.0)
    to_this = tl.sum(tl.maximum(value, 0.0) * grad, 1) + tl.sum(given * bias, 1)
    tl.store(to_rule + ts * N + n, to_this[:, None], mask=here)
    grad = tl.where(chosen & (value > 0), grad, 0.0)
    tl.store(passed + places, grad, mask=here & (hs < H))
    place = bias_sums + (block * N + n) * (H + D)
    tl.store(place + hs, tl.sum(grad, 0)[None, :], mask=hs < H)
    mine = tl.where(chosen, given, 0.0)
    tl.store(place + H + ds, tl.sum(mine, 0)[None, :], mask=ds < D)


@triton.jit(do_not_specialize=["T"])
def take_targets(
    g, target, outer, T, D: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of the slots that were changed, a row for each update; zero where none was."""
    ts = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    ds = tl.arange(0, DP)[None, :]
    inside = (ts < T) & (ds < D)
    at = tl.load(target + ts, mask=ts < T, other=-1).to(tl.int64)
    value = tl.load(g + at * D + ds, mask=inside & (at >= 0), other=0.0)
    tl.store(outer + ts * D + ds, value, mask=inside)


@triton.jit(do_not_specialize=["T", "rows_of_model", "N"])
def change_targets(
    slots, raw, bias_out, rule, target, new, update, T, rows_of_model, N,
    D: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The updates with their biases, and the changed slots with them."""
    ts = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    ds = tl.arange(0, DP)[None, :]
    inside = (ts < T) & (ds < D)
    owner = ts // rows_of_model * N + tl.load(rule + ts, mask=ts < T, other=0)
    change = tl.load(raw + ts * D + ds, mask=inside, other=0.0)
    change += tl.load(bias_out + owner * D + ds, mask=inside, other=0.0)
    tl.store(update + ts * D + ds, change, mask=inside)
    at = tl.load(target + ts, mask=ts < T, other=-1).to(tl.int64)
    changed = inside & (at >= 0)
    v = tl.load(slots + at * D + ds, mask=changed, other=0.0)
    tl.store(new + at * D + ds, v + change, mask=changed)
