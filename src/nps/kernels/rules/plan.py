"""What a call on a GPU launches and where its intermediate results lie, decided once by its sizes.

Kernels multiply the maps out, choose and copy the slots; the rules' products follow (`grouped.py`
or `joint.py`) and change the chosen slots; then the same backwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from nps.kernels.rules import grouped
from nps.kernels.rules.grouped import PRODUCT, SUM, Grouped, Size
from nps.kernels.rules.inputs import Values
from nps.kernels.rules.joint import MOVED, Joint
from nps.kernels.rules.launch import (
    LARGEST_TILE,
    Launch,
    Layout,
    Places,
    Steps,
    parts,
    power,
)

CHUNK = 16
"""Lines of a matrix that a program holds at a time."""
SPLITS, MOST_SPLITS, SPLIT = 16, 256, 128
"""Into how many parts at most the sums over the batch are split, for one model and for all models
together, and how many rows are worth one."""
MAP_TILE, MAP_RULES, MAP_LINE = 32, 16, 16
"""Sizes of `triton_maps.py`: columns of a map, rules, and elements of an embedding."""
GIVEN = (*Values._fields, "handicap")
"""Names of the values in kernels."""
FORWARD = (*GIVEN, "new")
BACKWARD = (*GIVEN, "g", "to_rule_scores", "to_context_scores", "to_slots", "to_features")


class Key(NamedTuple):
    """What a plan depends on."""

    parallel: bool
    device: int
    slots: tuple[int, ...]
    features: tuple[int, ...] | None
    embedding: tuple[int, ...]
    select_key: tuple[int, ...]
    bias_in: tuple[int, ...]
    uniform: tuple[int, ...]
    masked: bool
    some: bool
    drops: bool
    drop_tensor: bool
    temperature_tensor: bool
    self_context: bool
    tf32: bool


class Plan:
    """The launches of a call, and where its intermediate results lie in buffers."""

    def __init__(self, key: Key) -> None:
        self.key, parallel = key, key.parallel
        *of_models, b, m, d = key.slots
        n, r = key.embedding[-2:]
        lead, self.stages = tuple(of_models), key.uniform[-2]
        self.shared = key.features is None
        f = d if key.features is None else key.features[-1]
        c, h = key.select_key[-2], key.bias_in[-1]
        self.s, self.b, self.m, self.n, self.d, self.f = math.prod(lead), b, m, n, d, f
        self.r, self.c, self.bids = r, c, 2 if parallel else 0
        self.t = b * m if parallel else b
        self.noise = math.prod(key.uniform[-2:])
        size = Size(lead, self.t, n, 2 * d, h, d)
        self.action: Grouped | Joint = (
            Grouped(size, key.tf32) if grouped.serves(size) else Joint(size)
        )
        self.splits = max(1, min(SPLITS, parts(b * m, SPLIT), MOST_SPLITS // self.s))

        matches = (*lead, b, m, m) if parallel else (*lead, b, 1, m)
        chosen = (*lead, b, m) if parallel else (*lead, b)
        own = {"noisy_bids": (*lead, b, m, 2)}
        if not parallel:
            own = {"primary": chosen, "own": (*lead, b, f)}
        if self.stages > 1:
            own["after"] = key.slots
        self.maps = Layout(
            rule_map=(*lead, self.bids + n, f),
            bind_map=(*lead, f, f),
            keys=(*lead, n, c),
            bidders=(*lead, 2, c),
        )
        self.kept = Layout(
            scores=(*lead, b, m, n),
            matches=matches,
            rule=chosen,
            context=chosen,
            target=chosen,
            noisy=(*lead, b, m, n),
            noisy_matches=matches,
            pull=(*lead, self.t, f),
            x=(*lead, self.t, 2 * d),
            update=(*lead, self.t, d),
            **own,
            **self.action.kept,
        )
        self.passed = Layout(
            outer=(*lead, self.t, d),
            to_scores=(*lead, b * m, self.bids + n),
            to_pull=(*lead, self.t, f),
            map_sums=(self.splits, self.s, self.bids + n + f, f),
            **self.action.passed,
        )
        shapes = {
            "to_embedding": key.embedding,
            "to_select_key": key.select_key,
            "to_select_query": (*lead, c, f),
            "to_bind_query": (*lead, c, f),
            "to_bind_key": (*lead, c, f),
            **self.action.gradients,
        }
        if parallel:
            shapes["to_slot_key"] = (*lead, c, f)
            shapes["to_applicability"] = (*lead, n, r, c)
            shapes["to_null_rule"] = (*lead, c)
        self.gradients = Layout(**shapes)
        self.ahead = Places(FORWARD, maps=self.maps, kept=self.kept)
        rest = {"passed": self.passed, "gradients": self.gradients}
        self.back = Places(BACKWARD, maps=self.maps, kept=self.kept, **rest)
        if not parallel:  # Algorithm 1 has no such gradients
            for name in ("to_slot_key", "to_applicability", "to_null_rule"):
                self.back.of[name] = self.back.of["to_embedding"]
        powers = {"MP": power(m), "NP": power(n, least=16), "DP": power(d), "FP": power(f)}
        warps = max(1, min(8, max(CHUNK, powers["MP"]) * max(powers["DP"], powers["FP"]) // 512))
        self.sizes = {"M": m, "D": d, "F": f, **powers}
        self.options: dict[str, Any] = {"num_warps": warps}
        self.drops = {"DROPS": key.drops, "DROP_TENSOR": key.drop_tensor}
        self.forward = lru_cache(self._forward)
        self.backward = lru_cache(self._backward)

    def view_of(self, kept: Tensor, passed: Tensor) -> Callable[[str], Tensor]:
        """Parts of both buffers of a stage by name."""
        return lambda name: (
            self.kept.view(kept, name)
            if name in self.kept.shapes
            else self.passed.view(passed, name)
        )

    # -- launches -----------------------------------------------------------------------------

    def _forward(self, first: bool) -> list[Steps]:
        """Those of a stage, in parts between which torch multiplies; the first makes the maps."""
        key, at = self.key, self.ahead
        may = {"SELF_CONTEXT": key.self_context, "MASKED": key.masked, "SOME": key.some}
        numbers, constants = (self.b, self.n, self.noise), {**self.sizes, **may}
        constants |= self.drops
        launches = [self._make_maps()] if first else []
        name = "choose_one"
        if key.parallel:
            name = "choose_each"
            given = {"a": "features", "matrix": "bind_map", "out": "pull"}
            launches.append(self._multiply(at, given, (self.f, 1), add=False))
        grid = (self.s * self.b,)
        launches.append(Launch(at, name, grid, numbers, constants, **self.options))
        if isinstance(self.action, Grouped):
            return [Steps(*launches, *self.action.forward(at))]
        return [Steps(*launches), Steps(self.action.hide(at)), Steps(self.action.change(at))]

    def _backward(
        self, rule_scores: bool, context_scores: bool, later: bool, last: bool
    ) -> list[Steps]:
        """Those of a stage's gradient; the last ends with the gradients of the maps.

        `later`: whether gradients of later stages are there already, to which they are added.
        """
        key, at = self.key, self.back
        moved = {"D": self.d, "DP": power(self.d), "ROWS": MOVED}
        rows = self.s * self.t
        take = Launch(at, "take_targets", (parts(rows, MOVED),), (rows,), moved)
        constants = {
            **self.sizes,
            "SHARED": self.shared,
            "RESTRICTED": key.masked or key.some,
            "TEMPERATURE_TENSOR": key.temperature_tensor,
            **self.drops,
            "RULE_SCORES": rule_scores,
            "CONTEXT_SCORES": context_scores,
        }
        name = "choose_each_gradient" if key.parallel else "choose_one_gradient"
        grid, numbers = (self.s * self.b,), (self.b, self.n, self.noise, int(later))
        launches = [Launch(at, name, grid, numbers, constants, **self.options)]
        if key.parallel:  # what goes through `pull`
            out = "to_slots" if self.shared else "to_features"
            given = {"a": "to_pull", "matrix": "bind_map", "out": out}
            launches.append(self._multiply(at, given, (1, self.f), add=True))
        launches.append(self._sum_rows(later))
        if last:
            launches.append(self._map_gradients())
        if isinstance(self.action, Joint):
            return [Steps(take), Steps(self.action.expose(at)), Steps(*launches)]
        shares = self.action.add_shares(at) if last else []
        return [Steps(take, *self.action.backward(at, later), *shares, *launches)]

    def _multiply(
        self, at: Places, given: dict[str, str], strides: tuple[int, int], add: bool
    ) -> Launch:
        """Features, or their gradients, times the binding matrix."""
        grid = parts(self.t, PRODUCT.rows), parts(self.f, PRODUCT.columns), self.s
        constants = {"ADD": add, **PRODUCT.constants(self.key.tf32)}
        numbers, options = (self.t, self.f, self.f, *strides), PRODUCT.options()
        return Launch(at, "multiply_rows", grid, numbers, constants, given, **options)

    def _make_maps(self) -> Launch:
        across = parts(self.f, MAP_TILE)
        tiles = (parts(self.n, MAP_RULES) + across) * across + self.bids // 2
        size = power(self.c, least=16)
        constants = {"BIDS": self.bids, "CP": size, "LINES": LARGEST_TILE // size}
        numbers = self.n, self.r, self.c, self.f
        return Launch(self.ahead, "make_maps", (tiles, self.s), numbers, constants)

    def _sum_rows(self, later: bool) -> Launch:
        rows = self.bids + self.n
        grid = SUM.tiles(rows, self.f) + SUM.tiles(self.f, self.f), self.splits, self.s
        numbers = self.b * self.m, self.t, rows, self.f, int(later)
        given = {"own": "features"} if self.key.parallel else {}
        names = {"STEP": "LINES", "PRECISION": "PRODUCTS"}
        constants = {names.get(x, x): y for x, y in SUM.constants(self.key.tf32).items()}
        return Launch(self.back, "sum_rows", grid, numbers, constants, given, **SUM.options())

    def _map_gradients(self) -> Launch:
        products = 3 + self.bids // 2
        tiles = products * parts(self.f, MAP_TILE) + parts(self.r, MAP_LINE)
        numbers = self.n, self.r, self.c, self.f, self.splits
        size = power(self.c, least=16)
        constants = {"BIDS": self.bids, "CP": size, "SPLITS": power(self.splits)}
        return Launch(self.back, "map_gradients", (tiles, self.s), numbers, constants)


@lru_cache(maxsize=512)
def plan_of(key: Key) -> Plan:
    return Plan(key)
