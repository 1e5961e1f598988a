"""Step 4 on a GPU for many rows: sorted by rule, so that each rule computes its own rows alone.

Only the gradient to the choice needs all rules: its kernel computes their hidden layers again and
writes nothing but that gradient, so one hidden layer a row is kept whatever N is. Nothing is read
on the host: there are as many blocks of rows as could ever be needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nps.kernels.rules.launch import LARGEST_TILE, Launch, Layout, Space, address, parts, power

GROUPED_FROM = 1024
"""Rows from which on sorting pays."""
MOST_RULES = 512
SORTED = 128
"""Rows that a program sorts."""
SHARE = 64
"""Rows of a rule, if all were chosen equally often, that are worth a sum of their own."""
MOST_SUMS = 1024


class Size(NamedTuple):
    """Of the rules' products: T rows for each model."""

    lead: tuple[int, ...]
    """(S,) for stacked models, () for one."""
    t: int
    n: int
    i: int
    h: int
    d: int

    @property
    def s(self) -> int:
        return self.lead[0] if self.lead else 1


class Tile(NamedTuple):
    """How much a program takes at once, and how it is compiled."""

    rows: int
    columns: int
    step: int
    """Terms of a sum."""
    warps: int
    stages: int

    def constants(self, tf32: bool) -> dict[str, Any]:
        # Three products in TF32 have the rounding of float32.
        precision = "tf32" if tf32 else "tf32x3"
        sizes = {"ROWS": self.rows, "COLUMNS": self.columns, "STEP": self.step}
        return {**sizes, "PRECISION": precision}

    def options(self) -> dict[str, int]:
        return {"num_warps": self.warps, "num_stages": self.stages}


# The best of eight each on an H200, at 1,024 and at 5,120 rows.
PRODUCT = Tile(64, 32, 32, 4, 3)
SUM = Tile(32, 64, 32, 4, 3)
CHOICE = Tile(128, 64, 32, 8, 3)


def serves(size: Size) -> bool:
    return size.n <= MOST_RULES and size.s * size.t >= GROUPED_FROM


class Grouped:
    """The launches at one size, and the parts of a buffer that they use."""

    def __init__(self, size: Size, tf32: bool) -> None:
        lead, t, n, i, h, d = size
        s, self.size = size.s, size
        rules = power(n, least=16)
        rows = min(SORTED, LARGEST_TILE // rules)
        sorting = {"NP": rules, "ROWS": rows}
        grid = (parts(t, rows), s)
        self.parts = {
            "order": (*lead, t),
            "ends": (*lead, n),
            "counts": (s, parts(t, rows), n),
            "hidden": (*lead, t, h),
            "raw": (*lead, t, d),
        }
        self.back_parts = {"passed": (*lead, t, h), "to_x": (*lead, t, i), "to_rule": (*lead, t, n)}
        self.count = Launch("count_rules", grid, (t, n), sorting)
        self.order = Launch("order_rows", grid, (t, n), sorting)
        blocks = min(t, (t + n * (PRODUCT.rows - 1)) // PRODUCT.rows)

        def multiply(k: int, c: int, strides: tuple[int, int], **kinds: bool) -> Launch:
            names = {"RELU": False, "GATED": False, **kinds, "NP": rules}
            constants = {**names, **PRODUCT.constants(tf32)}
            columns = (blocks, parts(c, PRODUCT.columns), s)
            numbers = (t, n, k, c, *strides)
            return Launch("multiply_by_rule", columns, numbers, constants, **PRODUCT.options())

        self.to_hidden = multiply(i, h, (h, 1), RELU=True)
        self.to_output = multiply(h, d, (d, 1))
        self.back_to_hidden = multiply(d, h, (1, d), GATED=True)
        self.back_to_x = multiply(h, i, (1, h))
        self.choice = Launch(
            "choice_gradient",
            (parts(t, CHOICE.rows), n, s),
            (t, n, i, h, d),
            CHOICE.constants(tf32),
            **CHOICE.options(),
        )
        self.shares = max(1, min(parts(t, SHARE * n), MOST_SUMS // (s * n)))
        self.sums = Layout(
            weight_in=(n, i, h), bias_in=(n, h), weight_out=(n, h, d), bias_out=(n, d)
        )

        def add_up(p: int, q: int) -> Launch:
            tiles = parts(p, SUM.rows) * parts(q, SUM.columns)
            numbers = (t, n, p, q, self.sums.size)
            constants, options = SUM.constants(tf32), SUM.options()
            return Launch("sum_by_rule", (s * n, self.shares, tiles), numbers, constants, **options)

        self.sum_in, self.sum_out = add_up(i, h), add_up(h, d)

    def sort(self, stream: int, space: Space) -> None:
        """The rows of each model ordered by rule, and where in this order each rule ends."""
        rule, counts = space["rule"], space["counts"]
        self.count(stream, rule, counts)
        self.order(stream, rule, counts, space["order"], space["ends"])

    def forward(
        self, stream: int, space: Space, weights: tuple[Tensor, ...]
    ) -> tuple[Any, tuple[Tensor, ...]]:
        """The chosen rules' outputs without their bias; tensors to keep beside the buffer."""
        weight_in, bias_in, weight_out, _ = (address(w) for w in weights)
        x, hidden, raw = space["x"], space["hidden"], space["raw"]
        order, ends = space["order"], space["ends"]
        self.sort(stream, space)
        self.to_hidden(stream, x, weight_in, bias_in, x, hidden, order, ends)
        self.to_output(stream, hidden, weight_out, hidden, hidden, raw, order, ends)
        return raw, ()

    def backward(
        self,
        stream: int,
        space: Space,
        back: Space,
        weights: tuple[Tensor, ...],
        kept: tuple[Tensor, ...],
    ) -> tuple[Any, Any, list[Tensor]]:
        """To x, to the choice of every rule (T, N), and to the four weights."""
        weight_in, bias_in, weight_out, bias_out = (address(w) for w in weights)
        x, hidden, order, ends = space["x"], space["hidden"], space["order"], space["ends"]
        g, passed, to_x, to_rule = back["outer"], back["passed"], back["to_x"], back["to_rule"]
        self.choice(stream, x, g, weight_in, bias_in, weight_out, bias_out, to_rule)
        self.back_to_hidden(stream, g, weight_out, g, hidden, passed, order, ends)
        self.back_to_x(stream, passed, weight_in, passed, passed, to_x, order, ends)

        lead, shares = self.size.lead, self.shares
        total = torch.empty(*lead, shares, self.sums.size, device=weights[0].device)
        sums = Space(self.sums, total)
        self.sum_in(stream, x, passed, _at(sums, "weight_in"), _at(sums, "bias_in"), order, ends)
        self.sum_out(stream, hidden, g, _at(sums, "weight_out"), _at(sums, "bias_out"), order, ends)
        total = total.squeeze(-2) if shares == 1 else total.sum(-2)
        found = []
        for name, shape in self.sums.shapes.items():
            start, count = self.sums.starts[name], torch.Size(shape).numel()
            found.append(total[..., start : start + count].view(*lead, *shape))
        return to_x, to_rule, found


def _at(sums: Space, name: str) -> Any:
    """The part of the first share; the kernel steps from one share to the next."""
    return sums[name] if sums.base else sums.buffer.flatten()[sums.layout.starts[name] :]
