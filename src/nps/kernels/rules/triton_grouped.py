# mypy: ignore-errors
"""Triton kernels of the rules' products, each on the rows that chose the rule.

First a counting sort: ranks come from sums, so the order is always the same. Rows stay where they
are; a block is up to ROWS places of the order, all of one rule, and reads and writes through it.
What needs every rule, the gradient to the choice, is one kernel that keeps the hidden layers to
itself. Sizes are ordinary arguments, so that one compilation serves all.
"""

import triton
import triton.language as tl

SHARES = tl.constexpr(64)


@triton.jit(do_not_specialize=["T", "N"])
def count_rules(rule, counts, T, N, NP: tl.constexpr, ROWS: tl.constexpr):
    """How many of a share of the rows chose each rule."""
    share, model = tl.program_id(0), tl.program_id(1)
    ts, ns = share * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, NP)[None, :]
    chosen = tl.load(rule + model.to(tl.int64) * T + ts, mask=ts < T, other=-1)
    number = tl.sum((chosen == ns).to(tl.int32), 0)[None, :]
    tl.store(counts + (model * tl.num_programs(0) + share) * N + ns, number, mask=ns < N)


@triton.jit(do_not_specialize=["T", "N"])
def order_rows(rule, counts, order, ends, T, N, NP: tl.constexpr, ROWS: tl.constexpr):
    """The rows sorted by rule, and where in this order each rule ends."""
    share, model, shares = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    ts, ns = share * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, NP)[None, :]
    total, earlier = tl.zeros([NP], tl.int32), tl.zeros([NP], tl.int32)
    for first in range(0, shares, SHARES):
        others = first + tl.arange(0, SHARES)[:, None]
        inside = (others < shares) & (ns < N)
        number = tl.load(counts + (model * shares + others) * N + ns, mask=inside, other=0)
        total += tl.sum(number, 0)
        earlier += tl.sum(tl.where(others < share, number, 0), 0)
    end = tl.cumsum(total, 0)
    start = model.to(tl.int64) * T
    mine = tl.load(rule + start + ts, mask=ts < T, other=-1) == ns
    place = (end - total + earlier)[None, :] + tl.cumsum(mine.to(tl.int32), 0) - 1
    place = tl.sum(tl.where(mine, place, 0), 1)[:, None]
    tl.store(order + start + place, ts, mask=ts < T)
    if share == 0:
        tl.store(ends + model * N + ns, end[None, :], mask=ns < N)


@triton.jit
def rows_of(block, model, order, ends, T, N, NP: tl.constexpr, ROWS: tl.constexpr):
    """The rule of a block, N or more if there is none, its rows (ROWS, 1), and which exist."""
    ns = tl.arange(0, NP)
    end = tl.load(ends + model * N + ns, mask=ns < N, other=0)
    start = tl.load(ends + model * N + ns - 1, mask=(ns > 0) & (ns < N), other=0)
    blocks = (end - start + ROWS - 1) // ROWS
    last = tl.cumsum(blocks, 0)
    rule = tl.sum((last <= block).to(tl.int32), 0)
    first = tl.sum(tl.where(ns == rule, start + (block - last + blocks) * ROWS, 0), 0)
    places = first + tl.arange(0, ROWS)[:, None]
    here = places < tl.sum(tl.where(ns == rule, end, 0), 0)
    before = model.to(tl.int64) * T
    return rule, before + tl.load(order + before + places, mask=here, other=0), here


@triton.jit
def multiply(
    a, rows, here, b, cs, K, C, to_k, to_c,
    COLUMNS: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Rows of a (K wide) times columns of b (K, C), whose numbers lie to_k and to_c apart."""
    total = tl.zeros([rows.shape[0], COLUMNS], tl.float32)
    for k in range(0, K, STEP):
        across, down = k + tl.arange(0, STEP)[None, :], k + tl.arange(0, STEP)[:, None]
        left = tl.load(a + rows * K + across, mask=here & (across < K), other=0.0)
        inside = (down < K) & (cs < C)
        right = tl.load(b + down * to_k + cs * to_c, mask=inside, other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return total


@triton.jit(do_not_specialize=["T", "N"])
def multiply_by_rule(
    a, weight, bias, gate, out, order, ends, slots, target, new, T, N, K, C, to_k, to_c,
    BIASED: tl.constexpr, RELU: tl.constexpr, GATED: tl.constexpr, CHANGES: tl.constexpr,
    NP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Each row times the matrix of its rule.

    Then bias and ReLU, or what such a ReLU lets back, or the change of the target slots.
    """
    model = tl.program_id(2)
    rule, rows, here = rows_of(tl.program_id(0), model, order, ends, T, N, NP, ROWS)
    if rule >= N:
        return
    owner = model * N + rule
    cs = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = here & (cs < C)
    matrix = weight + owner.to(tl.int64) * K * C
    total = multiply(a, rows, here, matrix, cs, K, C, to_k, to_c, COLUMNS, STEP, PRECISION)
    if BIASED:
        total += tl.load(bias + owner * C + cs, mask=cs < C, other=0.0)
    if RELU:
        total = tl.maximum(total, 0.0)
    if GATED:
        fired = tl.load(gate + rows * C + cs, mask=inside, other=0.0) > 0
        total = tl.where(fired, total, 0.0)
    tl.store(out + rows * C + cs, total, mask=inside)
    if CHANGES:
        at = tl.load(target + rows, mask=here, other=-1).to(tl.int64)
        changed = inside & (at >= 0)
        before = tl.load(slots + at * C + cs, mask=changed, other=0.0)
        tl.store(new + at * C + cs, before + total, mask=changed)


@triton.jit(do_not_specialize=["T"])
def multiply_rows(
    a, matrix, out, T, K, C, to_k, to_c,
    ADD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """All rows times one matrix for each model, put into `out` or added to it."""
    model = tl.program_id(2).to(tl.int64)
    ts = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cs = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    rows, here = model * T + ts, ts < T
    matrix += model * K * C
    total = multiply(a, rows, here, matrix, cs, K, C, to_k, to_c, COLUMNS, STEP, PRECISION)
    inside = here & (cs < C)
    if ADD:
        total += tl.load(out + rows * C + cs, mask=inside, other=0.0)
    tl.store(out + rows * C + cs, total, mask=inside)


@triton.jit
def sum_tile(
    a, b, to_weight, to_bias, order, ends, tile, T, N, P, Q, later,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Over a share of a rule's rows, a tile of the sum of a (P) times b (Q), and the sum of b."""
    owner, shares = tl.program_id(0), tl.num_programs(1)
    model, rule = owner // N, owner % N
    across = (Q + COLUMNS - 1) // COLUMNS
    ps = tile // across * ROWS + tl.arange(0, ROWS)
    qs = tile % across * COLUMNS + tl.arange(0, COLUMNS)
    end = tl.load(ends + owner)
    start = tl.load(ends + owner - 1, mask=rule > 0, other=0)
    size = ((end - start + shares - 1) // shares + STEP - 1) // STEP * STEP
    start += tl.program_id(1) * size
    end = tl.minimum(end, start + size)
    before = model.to(tl.int64) * T
    inside = (ps < P)[:, None] & (qs < Q)[None, :]
    to_weight += owner.to(tl.int64) * P * Q + ps[:, None] * Q + qs[None, :]
    total = tl.load(to_weight, mask=inside & (later > 0), other=0.0)
    lines = tl.zeros([STEP, COLUMNS], tl.float32)
    for place in range(start, end, STEP):
        ordered = place + tl.arange(0, STEP)[:, None]
        here = ordered < end
        rows = before + tl.load(order + before + ordered, mask=here, other=0)
        left = tl.load(a + rows * P + ps[None, :], mask=here & (ps < P)[None, :], other=0.0)
        right = tl.load(b + rows * Q + qs[None, :], mask=here & (qs < Q)[None, :], other=0.0)
        total = tl.dot(tl.trans(left), right, total, input_precision=PRECISION)
        lines += right
    tl.store(to_weight, total, mask=inside)
    if tile < across:
        places = to_bias + owner * Q + qs
        line = tl.sum(lines, 0) + tl.load(places, mask=(qs < Q) & (later > 0), other=0.0)
        tl.store(places, line, mask=qs < Q)


@triton.jit(do_not_specialize=["T", "N", "between", "later"])
def sum_by_rule(
    x, passed, hidden, outer, to_weight_in, to_bias_in, to_weight_out, to_bias_out, order, ends,
    T, N, X, H, D, between, later,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of the weights, `between` apart for each share of a rule's rows.

    They are added to those of later stages.
    """
    tile, skip = tl.program_id(2), tl.program_id(1).to(tl.int64) * between
    of_first = (X + ROWS - 1) // ROWS * ((H + COLUMNS - 1) // COLUMNS)
    if tile < of_first:
        sum_tile(
            x, passed, to_weight_in + skip, to_bias_in + skip, order, ends, tile, T, N, X, H,
            later, ROWS, COLUMNS, STEP, PRECISION,
        )  # fmt: skip
    else:
        sum_tile(
            hidden, outer, to_weight_out + skip, to_bias_out + skip, order, ends, tile - of_first,
            T, N, H, D, later, ROWS, COLUMNS, STEP, PRECISION,
        )  # fmt: skip


@triton.jit(do_not_specialize=["size", "shares"])
def add_shares(weight_sums, to_weight_in, size, shares, BLOCK: tl.constexpr):
    """The gradients of the weights, which lie one after the other, from those of the shares."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for share in tl.range(0, shares, loop_unroll_factor=4):
        at = weight_sums + share.to(tl.int64) * size + places
        total += tl.load(at, mask=places < size, other=0.0)
    tl.store(to_weight_in + places, total, mask=places < size)


@triton.jit(do_not_specialize=["T", "N"])
def choice_gradient(
    x, outer, weight_in, bias_in, weight_out, bias_out, to_rule, T, N, X, H, D,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """To the choice of a rule by rows, chosen or not: `outer` times what it would have done."""
    n, model = tl.program_id(1), tl.program_id(2)
    owner = (model * N + n).to(tl.int64)
    ts = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    here, rows = ts < T, model.to(tl.int64) * T + ts
    weight_in += owner * X * H
    weight_out += owner * H * D
    total = tl.zeros([ROWS], tl.float32)
    for h in range(0, H, COLUMNS):
        hs = h + tl.arange(0, COLUMNS)[None, :]
        hidden = multiply(x, rows, here, weight_in, hs, X, H, H, 1, COLUMNS, STEP, PRECISION)
        bias = tl.load(bias_in + owner * H + hs, mask=hs < H, other=0.0)
        passed = multiply(outer, rows, here, weight_out, hs, D, H, 1, D, COLUMNS, STEP, PRECISION)
        total += tl.sum(tl.maximum(hidden + bias, 0.0) * passed, 1)
    for d in range(0, D, STEP):
        ds = d + tl.arange(0, STEP)[None, :]
        grad = tl.load(outer + rows * D + ds, mask=here & (ds < D), other=0.0)
        total += tl.sum(grad * tl.load(bias_out + owner * D + ds, mask=ds < D, other=0.0), 1)
    tl.store(to_rule + rows * N + n, total[:, None], mask=here)
