# mypy: ignore-errors
"""Triton kernels of the maps (see `maps.py`) and of their gradients.

The products are small, so that one launch computes all of them: a program finds out which tile of
which product is its own. Sums over the batch are split, and the splits added in a fixed order
where they are read.
"""

import triton
import triton.language as tl

PRECISION = tl.constexpr("tf32x3")  # three products in TF32 have the rounding of float32
RULES = tl.constexpr(16)
TILE = tl.constexpr(32)
STEP = tl.constexpr(16)
"""Terms of a sum that a program takes at once."""


@triton.jit
def product_tile(a, ps, P, a_p, a_k, b, qs, Q, b_k, b_q, K):
    """Rows ps of a (P, K) times columns qs of b (K, Q), with the strides of both."""
    total = tl.zeros([ps.shape[0], qs.shape[1]], tl.float32)
    for k in range(0, K, TILE):
        across, down = k + tl.arange(0, TILE)[None, :], k + tl.arange(0, TILE)[:, None]
        left = tl.load(a + ps * a_p + across * a_k, mask=(ps < P) & (across < K), other=0.0)
        right = tl.load(b + down * b_k + qs * b_q, mask=(down < K) & (qs < Q), other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return total


@triton.jit(do_not_specialize=["N"])
def make_maps(
    embedding, select_key, select_query, bind_query, bind_key, slot_key, applicability, null_rule,
    retired, rule_map, bind_map, keys, bidders, N, R, C, F,
    BIDS: tl.constexpr, CP: tl.constexpr, LINES: tl.constexpr,
):  # fmt: skip
    """The rules' keys and both maps; if there are BIDS, the bidders and their rows of the map."""
    tile, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    across = (F + TILE - 1) // TILE
    of_rules = (N + RULES - 1) // RULES * across
    embedding += model * N * R
    rule_map += model * (N + BIDS) * F
    cs = tl.arange(0, CP)
    if tile < of_rules:
        ns = tile // across * RULES + tl.arange(0, RULES)[:, None]
        fs = tile % across * TILE + tl.arange(0, TILE)[None, :]
        matrix, columns = select_key + model * C * R, cs[None, :]
        key = product_tile(embedding, ns, N, R, 1, matrix, columns, C, 1, R, R)
        if tile % across == 0:
            inside = (ns < N) & (columns < C)
            tl.store(keys + model * N * C + ns * C + columns, key, mask=inside)
        lines = cs[:, None]
        query = select_query + model * C * F + lines * F + fs
        query = tl.load(query, mask=(lines < C) & (fs < F), other=0.0)
        score = tl.dot(key, query, input_precision=PRECISION)
        tl.store(rule_map + (BIDS + ns) * F + fs, score, mask=(ns < N) & (fs < F))
    elif tile < of_rules + across * across:
        tile -= of_rules
        ps = tile // across * TILE + tl.arange(0, TILE)[:, None]
        qs = tile % across * TILE + tl.arange(0, TILE)[None, :]
        query, key = bind_query + model * C * F, bind_key + model * C * F
        match = product_tile(query, ps, F, 1, F, key, qs, F, F, 1, C)
        tl.store(bind_map + (model * F + ps) * F + qs, match, mask=(ps < F) & (qs < F))
    elif BIDS > 0:
        applicability += model * N * R * C
        joint = tl.load(retired + model * C + cs, mask=cs < C, other=0.0)
        for k in range(0, N * R, LINES):
            ks = k + tl.arange(0, LINES)[:, None]
            inside = (ks < N * R) & (cs[None, :] < C)
            block = tl.load(applicability + ks * C + cs[None, :], mask=inside, other=0.0)
            joint += tl.sum(tl.load(embedding + ks, mask=ks < N * R, other=0.0) * block, 0)
        null = tl.load(null_rule + model * C + cs, mask=cs < C, other=0.0)
        bidders += model * BIDS * C
        tl.store(bidders + cs, joint, mask=cs < C)
        tl.store(bidders + C + cs, null, mask=cs < C)
        for f in range(0, F, TILE):
            fs = f + tl.arange(0, TILE)
            inside = (cs < C)[:, None] & (fs < F)[None, :]
            matrix = slot_key + model * C * F + cs[:, None] * F + fs[None, :]
            matrix = tl.load(matrix, mask=inside, other=0.0)
            tl.store(rule_map + fs, tl.sum(joint[:, None] * matrix, 0), mask=fs < F)
            tl.store(rule_map + F + fs, tl.sum(null[:, None] * matrix, 0), mask=fs < F)


@triton.jit
def add_rows(
    a, b, out, tile, T, P, Q, later,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, LINES: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    """A tile of the sum over this split's share of T rows of a (P) times b (Q)."""
    across = (Q + COLUMNS - 1) // COLUMNS
    ps = tile // across * ROWS + tl.arange(0, ROWS)
    qs = tile % across * COLUMNS + tl.arange(0, COLUMNS)
    splits = tl.num_programs(1)
    size = ((T + splits - 1) // splits + LINES - 1) // LINES * LINES
    start = tl.program_id(1) * size
    before = tl.program_id(2).to(tl.int64) * T
    inside = (ps < P)[:, None] & (qs < Q)[None, :]
    out += ps[:, None] * Q + qs[None, :]
    total = tl.load(out, mask=inside & (later > 0), other=0.0)
    for t in range(start, tl.minimum(start + size, T), LINES):
        ts = t + tl.arange(0, LINES)[:, None]
        left = tl.load(
            a + (before + ts) * P + ps[None, :], mask=(ts < T) & (ps < P)[None, :], other=0.0
        )
        right = tl.load(
            b + (before + ts) * Q + qs[None, :], mask=(ts < T) & (qs < Q)[None, :], other=0.0
        )
        total = tl.dot(tl.trans(left), right, total, input_precision=PRODUCTS)
    tl.store(out, total, mask=inside)


@triton.jit(do_not_specialize=["SCORED", "PULLED", "later"])
def sum_rows(
    to_scores, features, own, to_pull, map_sums, SCORED, PULLED, P, F, later,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, LINES: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    """Gradients of both maps, of each split of the rows; added to those of later stages."""
    tile, split, model = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    across = (F + COLUMNS - 1) // COLUMNS
    of_rules = (P + ROWS - 1) // ROWS * across
    map_sums += (split * tl.num_programs(2) + model).to(tl.int64) * (P + F) * F
    if tile < of_rules:
        add_rows(
            to_scores, features, map_sums, tile, SCORED, P, F, later, ROWS, COLUMNS, LINES, PRODUCTS
        )
    else:
        tile -= of_rules
        out = map_sums + P * F
        add_rows(own, to_pull, out, tile, PULLED, F, F, later, ROWS, COLUMNS, LINES, PRODUCTS)


@triton.jit
def added(sums, places, inside, splits, between, SPLITS: tl.constexpr):
    """A tile of sums, all splits together."""
    split = tl.arange(0, SPLITS)[:, None, None]
    every = sums + split.to(tl.int64) * between + places[None, :, :]
    return tl.sum(tl.load(every, mask=(split < splits) & inside[None, :, :], other=0.0), 0)


@triton.jit
def times_sums(
    a, P, a_p, a_k, sums, b_k, b_q, K, Q, out, tile, splits, between,
    PP: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """A tile of a (P, K) times sums (K, Q)."""
    ps, qs = tl.arange(0, PP)[:, None], tile * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros([PP, TILE], tl.float32)
    for k in range(0, K, STEP):
        across, down = k + tl.arange(0, STEP)[None, :], k + tl.arange(0, STEP)[:, None]
        left = tl.load(a + ps * a_p + across * a_k, mask=(ps < P) & (across < K), other=0.0)
        inside = (down < K) & (qs < Q)
        right = added(sums, down * b_k + qs * b_q, inside, splits, between, SPLITS)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(out + ps * Q + qs, total, mask=(ps < P) & (qs < Q))


@triton.jit
def bidder_gradient(sums, slot_key, cs, C, F, splits, between, SPLITS: tl.constexpr):
    """To these elements of a bidder, from the gradient to its row of the map."""
    total = tl.zeros([cs.shape[0]], tl.float32)
    for f in range(0, F, TILE):
        fs = f + tl.arange(0, TILE)[None, :]
        row = added(sums, fs, fs < F, splits, between, SPLITS)
        inside = (cs < C)[:, None] & (fs < F)
        total += tl.sum(tl.load(slot_key + cs[:, None] * F + fs, mask=inside, other=0.0) * row, 1)
    return total


@triton.jit(do_not_specialize=["N"])
def map_gradients(
    embedding, select_key, select_query, bind_query, bind_key, slot_key, applicability, keys,
    bidders, map_sums, to_embedding, to_select_key, to_select_query, to_bind_query, to_bind_key,
    to_slot_key, to_applicability, to_null_rule, N, R, C, F, splits,
    BIDS: tl.constexpr, CP: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """From the gradients of the maps to those of what they are made of."""
    tile, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    between = tl.num_programs(1) * (N + BIDS + F) * F
    map_sums += model * (N + BIDS + F) * F
    to_rules, to_bind = map_sums + BIDS * F, map_sums + (N + BIDS) * F
    matrix = model * C * F
    across = (F + TILE - 1) // TILE
    part, tile = tile // across, tile % across
    if part == 0:
        a, out = bind_query + matrix, to_bind_key + matrix
        times_sums(a, C, F, 1, to_bind, F, 1, F, F, out, tile, splits, between, CP, SPLITS)
    elif part == 1:
        a, out = bind_key + matrix, to_bind_query + matrix
        times_sums(a, C, F, 1, to_bind, 1, F, F, F, out, tile, splits, between, CP, SPLITS)
    elif part == 2:
        a, out = keys + model * N * C, to_select_query + matrix
        times_sums(a, C, 1, C, to_rules, F, 1, N, F, out, tile, splits, between, CP, SPLITS)
    elif part == 3 and BIDS > 0:
        a, out = bidders + model * BIDS * C, to_slot_key + matrix
        times_sums(a, C, 1, C, map_sums, F, 1, BIDS, F, out, tile, splits, between, CP, SPLITS)
    else:
        tile = tl.program_id(0) - (4 if BIDS > 0 else 3) * across
        embedding += model * N * R
        to_embedding += model * N * R
        slot_key += matrix
        cs, rs = tl.arange(0, CP), tile * STEP + tl.arange(0, STEP)[None, :]
        lines = cs[:, None]
        to_key_matrix = tl.zeros([CP, STEP], tl.float32)
        of_matrix = model * C * R + lines * R + rs
        in_matrix = (lines < C) & (rs < R)
        key_matrix = tl.load(select_key + of_matrix, mask=in_matrix, other=0.0)
        for n in range(0, N, RULES):
            ns = n + tl.arange(0, RULES)[:, None]
            to_key = tl.zeros([RULES, CP], tl.float32)
            for f in range(0, F, STEP):
                fs, down = f + tl.arange(0, STEP)[None, :], f + tl.arange(0, STEP)[:, None]
                inside = (ns < N) & (fs < F)
                to_rule = added(to_rules, ns * F + fs, inside, splits, between, SPLITS)
                query = select_query + matrix + cs[None, :] * F + down
                query = tl.load(query, mask=(down < F) & (cs < C)[None, :], other=0.0)
                to_key = tl.dot(to_rule, query, to_key, input_precision=PRECISION)
            of_rule, in_rule = ns * R + rs, (ns < N) & (rs < R)
            line = tl.load(embedding + of_rule, mask=in_rule, other=0.0)
            to_line = tl.dot(to_key, key_matrix, input_precision=PRECISION)
            to_key_matrix = tl.dot(tl.trans(to_key), line, to_key_matrix, input_precision=PRECISION)
            if BIDS > 0:
                for c in range(0, C, TILE):
                    ks = c + tl.arange(0, TILE)
                    to_joint = bidder_gradient(
                        map_sums, slot_key, ks, C, F, splits, between, SPLITS
                    )[None, None, :]
                    block = (model * N * R + of_rule)[:, :, None] * C + ks[None, None, :]
                    inside = in_rule[:, :, None] & (ks < C)[None, None, :]
                    share = tl.load(applicability + block, mask=inside, other=0.0)
                    to_line += tl.sum(share * to_joint, 2)
                    tl.store(to_applicability + block, line[:, :, None] * to_joint, mask=inside)
            tl.store(to_embedding + of_rule, to_line, mask=in_rule)
        tl.store(to_select_key + of_matrix, to_key_matrix, mask=in_matrix)
        if BIDS > 0 and tile == 0:
            for c in range(0, C, TILE):
                ks = c + tl.arange(0, TILE)
                null = map_sums + F
                to_null = bidder_gradient(null, slot_key, ks, C, F, splits, between, SPLITS)
                tl.store(to_null_rule + model * C + ks, to_null, mask=ks < C)
