"""Step 4 on a GPU, rows sorted by rule: what belongs to the chosen rule is computed for it alone.

Only the gradient to the choice needs all rules: its kernel computes their hidden layers again and
writes nothing but that gradient. So the stage keeps one hidden layer a row, whatever N is. Nothing
is read on the host: there are as many blocks as could be needed (as in `nps.rules.dispatch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nps.rules.fused import calls
from nps.rules.fused.inputs import Inputs

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class Tile(NamedTuple):
    """How much a program takes at once, and how it is compiled."""

    rows: int
    columns: int
    step: int
    """Terms of a sum."""
    warps: int
    stages: int


# The best of eight each on an H200, at 1,024 and at 5,120 rows.
PRODUCT = Tile(64, 32, 32, 4, 3)
SUM = Tile(32, 64, 32, 4, 3)
CHOICE = Tile(128, 64, 32, 8, 3)
SORTED = 128
"""Rows that a program sorts."""
MOST_RULES = 512
SHARE = 64
"""Rows of a rule, if all were chosen equally often, that are worth a sum of their own."""
MOST_SUMS = 1024


def act(inputs: Inputs, x: Float[Tensor, "S T I"], rule: Int[Tensor, "S T"]) -> tuple[Tensor, ...]:
    """What the chosen rules do, without its bias, and three tensors for `act_gradient`."""
    h, d = inputs.weight_out.shape[2:]
    order, ends = sort(rule, inputs.weight_in.shape[1])
    mine, raw = x.new_empty(*rule.shape, h), x.new_empty(*rule.shape, d)
    weight_in, weight_out = inputs.weight_in.contiguous(), inputs.weight_out.contiguous()
    _multiply(x, weight_in, mine, order, ends, bias=inputs.bias_in.contiguous())
    _multiply(mine, weight_out, raw, order, ends)
    return raw, mine, order, ends


def act_gradient(
    inputs: Inputs,
    g: Float[Tensor, "S T D"],
    x: Float[Tensor, "S T I"],
    rule: Int[Tensor, "S T"],
    mine: Float[Tensor, "S T H"],
    order: Int[Tensor, "S T"],
    ends: Int[Tensor, "S N"],
) -> tuple[Tensor, ...]:
    """To x, to the choice of every rule (S, T, N), and to the four weights."""
    weight_in, bias_in, weight_out, bias_out = (w.contiguous() for w in inputs[3:7])
    (s, n, i, h), (_, t, d) = weight_in.shape, g.shape
    to_choice = g.new_empty(s, t, n)
    given = x, g, weight_in, bias_in, weight_out, bias_out, to_choice, t, n, i, h, d
    calls.call("choice_gradient", (_parts(t, CHOICE.rows), n, s), *given, **_compiled(CHOICE))

    passed, to_x = torch.empty_like(mine), torch.empty_like(x)
    _multiply(g, weight_out.mT, passed, order, ends, gate=mine)
    _multiply(passed, weight_in.mT, to_x, order, ends)

    shares = max(1, min(_parts(t, SHARE * n), MOST_SUMS // (s * n)))
    sizes = [n * i * h, n * h, n * h * d, n * d]
    sums = g.new_empty(s, shares, sum(sizes))
    into = sums.split(sizes, -1)
    _sum(x, passed, into[:2], order, ends, sums)
    _sum(mine, g, into[2:], order, ends, sums)
    to_weights = sums.sum(1).split(sizes, -1)
    shapes = (n, i, h), (n, h), (n, h, d), (n, d)
    found = (w.unflatten(-1, shape) for w, shape in zip(to_weights, shapes, strict=True))
    return to_x, to_choice, *found


def sort(rule: Int[Tensor, "S T"], n: int) -> tuple[Int[Tensor, "S T"], Int[Tensor, "S N"]]:
    """The rows of each model ordered by rule, and where in this order each rule ends."""
    (s, t), (rules, rows) = rule.shape, _sorted(n)
    shares = _parts(t, rows)
    counts, order, ends = (
        rule.new_empty(s, *size, dtype=torch.int32) for size in [(shares, n), (t,), (n,)]
    )
    calls.call("count_rules", (shares, s), rule, counts, t, n, NP=rules, ROWS=rows)
    calls.call("order_rows", (shares, s), rule, counts, order, ends, t, n, NP=rules, ROWS=rows)
    return order, ends


def _multiply(
    a: Float[Tensor, "S T K"],
    weight: Float[Tensor, "S N K C"],
    out: Float[Tensor, "S T C"],
    order: Int[Tensor, "S T"],
    ends: Int[Tensor, "S N"],
    *,
    bias: Float[Tensor, "S N C"] | None = None,
    gate: Float[Tensor, "S T C"] | None = None,
) -> None:
    """Each row times the matrix of its rule; with a bias, then ReLU; with a gate, its gradient."""
    (s, n, k, c), t = weight.shape, a.shape[1]
    blocks = min(t, (t + n * (PRODUCT.rows - 1)) // PRODUCT.rows)
    given = a, weight, a if bias is None else bias, a if gate is None else gate, out, order, ends
    kinds = {"RELU": bias is not None, "GATED": gate is not None, "NP": _sorted(n)[0]}
    grid, sizes = (blocks, _parts(c, PRODUCT.columns), s), (t, n, k, c, *weight.stride()[2:])
    calls.call("multiply_by_rule", grid, *given, *sizes, **kinds, **_compiled(PRODUCT))


def _sum(
    a: Float[Tensor, "S T P"],
    b: Float[Tensor, "S T Q"],
    into: tuple[Tensor, ...],
    order: Int[Tensor, "S T"],
    ends: Int[Tensor, "S N"],
    sums: Float[Tensor, "S shares X"],
) -> None:
    """Sums of a times b, and of b, over shares of the rows of each rule: into parts of `sums`."""
    (s, t, p), q, n = a.shape, b.shape[2], ends.shape[1]
    tiles = _parts(p, SUM.rows) * _parts(q, SUM.columns)
    given = a, b, *into, order, ends, t, n, p, q, sums.shape[2]
    calls.call("sum_by_rule", (s * n, sums.shape[1], tiles), *given, **_compiled(SUM))


def _compiled(tile: Tile) -> dict[str, Any]:
    # Three products in TF32 have the rounding of float32.
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"
    sizes = {"ROWS": tile.rows, "COLUMNS": tile.columns, "STEP": tile.step}
    return {**sizes, "PRECISION": precision, "num_warps": tile.warps, "num_stages": tile.stages}


def _sorted(n: int) -> tuple[int, int]:
    """Rules, as a power of two that is the same for all small numbers, and rows of a program."""
    rules = calls.power(n, least=16)
    return rules, min(SORTED, calls.LARGEST_TILE // rules)


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)
