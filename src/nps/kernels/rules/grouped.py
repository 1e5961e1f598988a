"""Step 4 on a GPU for many rows: sorted by rule, so that each rule computes its own rows alone.

Only the gradient to the choice needs all rules: its kernel computes their hidden layers again and
writes nothing but that gradient, so one hidden layer a row is kept whatever N is. Nothing is read
on the host: there are as many blocks of rows as could ever be needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from nps.kernels.rules.launch import LARGEST_TILE, Launch, Layout, Places, parts, power

GROUPED_FROM = 1024
"""Rows from which on sorting pays."""
MOST_RULES = 512
SORTED = 128
"""Rows that a program sorts."""
SHARE = 128
"""Rows of a rule, if all were chosen equally often, that are worth a sum of their own."""
MOST_SUMS = 1024
ADDED = 1024
"""Sums that a program adds up."""


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

    def weights(self) -> dict[str, tuple[int, ...]]:
        """The gradients of the four weights, one after the other."""
        lead, _, n, i, h, d = self
        shapes = {"weight_in": (n, i, h), "bias_in": (n, h), "weight_out": (n, h, d)}
        shapes["bias_out"] = (n, d)
        return {f"to_{name}": (*lead, *shape) for name, shape in shapes.items()}


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

    def options(self) -> dict[str, Any]:
        return {"num_warps": self.warps, "num_stages": self.stages}

    def tiles(self, p: int, q: int) -> int:
        """How many a matrix has."""
        return parts(p, self.rows) * parts(q, self.columns)


# The best of eight each on an H200, at 1,024 and at 5,120 rows.
PRODUCT = Tile(64, 32, 32, 4, 3)
SUM = Tile(32, 64, 32, 4, 3)
CHOICE = Tile(128, 64, 32, 8, 3)


def serves(size: Size) -> bool:
    return size.n <= MOST_RULES and size.s * size.t >= GROUPED_FROM


class Grouped:
    """The launches at one size, and the parts of buffers that they use."""

    def __init__(self, size: Size, tf32: bool) -> None:
        lead, t, n, i, h, _d = size
        self.size, self.tf32 = size, tf32
        self.rules = power(n, least=16)
        self.rows = min(SORTED, LARGEST_TILE // self.rules)
        self.shares = max(1, min(parts(t, SHARE * n), MOST_SUMS // (size.s * n)))
        self.gradients = size.weights()
        self.sums = Layout(**self.gradients)
        self.kept = {
            "order": (*lead, t),
            "ends": (*lead, n),
            "counts": (size.s, parts(t, self.rows), n),
            "hidden": (*lead, t, h),
        }
        self.passed = {"passed": (*lead, t, h), "to_x": (*lead, t, i), "to_rule": (*lead, t, n)}
        if self.shares > 1:
            self.passed["weight_sums"] = (self.shares, self.sums.size)

    def sort(self, places: Places) -> list[Launch]:
        """The rows of each model ordered by rule, and where in this order each rule ends."""
        grid = parts(self.size.t, self.rows), self.size.s
        numbers, constants = (self.size.t, self.size.n), {"NP": self.rules, "ROWS": self.rows}
        return [Launch(places, x, grid, numbers, constants) for x in ("count_rules", "order_rows")]

    def _multiply(
        self, places: Places, a: str, weight: str, out: str, strides: tuple[int, int], **also: str
    ) -> Launch:
        """Each row of `a` times its rule's matrix. `also`: bias, relu, gate, or new slots."""
        _, t, n, i, h, d = self.size
        widths = {"x": i, "hidden": h, "update": d, "outer": d, "passed": h, "to_x": i}
        kinds = {x.upper(): x in also for x in ("biased", "relu", "gated", "changes")}
        constants = {**kinds, "NP": self.rules, **PRODUCT.constants(self.tf32)}
        blocks = min(t, (t + n * (PRODUCT.rows - 1)) // PRODUCT.rows)
        grid = blocks, parts(widths[out], PRODUCT.columns), self.size.s
        given = {"a": a, "weight": weight, "out": out}
        given |= {"bias": also.get("biased", a), "gate": also.get("gated", a)}
        given["new"] = also.get("changes", a)
        numbers = t, n, widths[a], widths[out], *strides
        options = PRODUCT.options()
        return Launch(places, "multiply_by_rule", grid, numbers, constants, given, **options)

    def forward(self, places: Places) -> list[Launch]:
        """Updates of the rows, and the changed slots."""
        h, d = self.size.h, self.size.d
        return [
            *self.sort(places),
            self._multiply(
                places, "x", "weight_in", "hidden", (h, 1), biased="bias_in", relu="yes"
            ),
            self._multiply(
                places, "hidden", "weight_out", "update", (d, 1), biased="bias_out", changes="new"
            ),
        ]

    def backward(self, places: Places, later: bool) -> list[Launch]:
        """To x, to the choice of every rule (T, N), and to the four weights."""
        _, t, n, i, h, d = self.size
        grid = parts(t, CHOICE.rows), n, self.size.s
        constants, options = CHOICE.constants(self.tf32), CHOICE.options()
        choice = Launch(places, "choice_gradient", grid, (t, n, i, h, d), constants, **options)
        tiles = SUM.tiles(i, h) + SUM.tiles(h, d)
        grid = self.size.s * n, self.shares, tiles
        numbers = t, n, i, h, d, self.sums.size, int(later)
        constants, options = SUM.constants(self.tf32), SUM.options()
        within = self._among_shares(places) if self.shares > 1 else places
        return [
            choice,
            self._multiply(places, "outer", "weight_out", "passed", (1, d), gated="hidden"),
            self._multiply(places, "passed", "weight_in", "to_x", (1, h)),
            Launch(within, "sum_by_rule", grid, numbers, constants, **options),
        ]

    def add_shares(self, places: Places) -> list[Launch]:
        if self.shares == 1:
            return []
        grid, numbers = (parts(self.sums.size, ADDED),), (self.sums.size, self.shares)
        return [Launch(places, "add_shares", grid, numbers, {"BLOCK": ADDED})]

    def _among_shares(self, places: Places) -> Places:
        """The weights' gradients lie in the first share; the kernel steps to the others."""
        within, (i, first) = Places(()), places.of["weight_sums"]
        shifted = {name: (i, first + start) for name, start in self.sums.starts.items()}
        within.of = {**places.of, **shifted}
        return within
