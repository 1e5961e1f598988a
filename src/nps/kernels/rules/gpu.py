"""A call of either algorithm on a GPU, all of it in Triton kernels but for a few large products.

It does what `cpu.py` does: kernels multiply the maps out, choose and copy the slots; the rules'
products follow (`grouped.py` or `joint.py`) and change the chosen slots; then the same backwards.
Everything that depends on sizes alone is decided once, in a `Plan`; a call computes addresses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nps.kernels.rules import grouped
from nps.kernels.rules.grouped import PRODUCT, SUM, Grouped, Size
from nps.kernels.rules.inputs import GRADIENTS, Values
from nps.kernels.rules.joint import MOVED, Joint
from nps.kernels.rules.launch import (
    ALIGNMENT,
    DIRECT,
    LARGEST_TILE,
    Launch,
    Layout,
    Places,
    Steps,
    base,
    further,
    installed,
    parts,
    power,
    ready,
)

if TYPE_CHECKING:
    from nps.kernels.rules.function import Call

CHUNK = 16
"""Lines of a matrix that a program holds at a time."""
SPLITS, SPLIT = 16, 128
"""Into how many parts at most the sums over the batch are split, and from how many rows each."""
MAP_TILE, MAP_RULES, MAP_LINE = 32, 16, 16
"""Sizes of `triton_maps.py`: columns of a map, rules, and elements of an embedding."""
GIVEN = (*Values._fields[:17], "allowed", "temperature", "dropout", "handicap")
"""Names of the values in kernels."""
SLOTS, FEATURES, UNIFORM = (GIVEN.index(x) for x in ("slots", "features", "uniform"))
FORWARD = (*GIVEN, "new")
BACKWARD = (*GIVEN, "g", "to_rule_scores", "to_context_scores", "to_slots", "to_features")


def supported(slots: Tensor, hidden_dim: int, n: int, selection_dim: int, key_dim: int) -> bool:
    """True if the kernels can hold a stage of these sizes."""
    if not installed() or slots.dtype != torch.float32:
        return False
    return fits(slots, hidden_dim, n, selection_dim, key_dim)


def fits(slots: Tensor, h: int, n: int, f: int, key: int) -> bool:
    m, d = slots.shape[-2:]
    tiles = [(m, d), (m, f), (m, n), (m, m), (CHUNK, h), (CHUNK, d), (CHUNK, f), (MAP_TILE, key)]
    return all(power(a) * power(b) <= LARGEST_TILE for a, b in tiles)


class Key(NamedTuple):
    """What a plan depends on."""

    parallel: bool
    device: int
    slots: tuple[int, ...]
    features: tuple[int, ...] | None
    embedding: tuple[int, ...]
    select_key: tuple[int, ...]
    bias_in: tuple[int, ...]
    stages: int
    uniform_stride: int
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
        *lead, b, m, d = key.slots
        n, r = key.embedding[-2:]
        self.lead = lead = tuple(lead)
        self.shared = key.features is None
        f = d if key.features is None else key.features[-1]
        c, h = key.select_key[-2], key.bias_in[-1]
        self.s, self.b, self.m, self.n, self.d, self.f = math.prod(lead), b, m, n, d, f
        self.r, self.c, self.bids = r, c, 2 if parallel else 0
        self.t = b * m if parallel else b
        size = Size(lead, self.t, n, 2 * d, h, d)
        serves = grouped.serves(size)
        self.action = Grouped(size, key.tf32) if serves else Joint(size)
        self.splits = max(1, min(SPLITS, parts(b * m, SPLIT)))

        matches = (*lead, b, m, m) if parallel else (*lead, b, 1, m)
        chosen = (*lead, b, m) if parallel else (*lead, b)
        own = {"noisy_bids": (*lead, b, m, 2)}
        if not parallel:
            own = {"primary": chosen, "own": (*lead, b, f)}
        if key.stages > 1:
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
        # What a view of each part is made after, and of the gaps between them.
        self.templates, self.gaps = [], []
        for shape in shapes.values():
            self.templates.append(torch.empty(shape, device="meta"))
            gap = -math.prod(shape) % ALIGNMENT
            if gap:
                self.gaps.append(len(self.templates))
                self.templates.append(torch.empty(gap, device="meta"))
        self.ahead = Places(FORWARD, maps=self.maps, kept=self.kept)
        rest = {"passed": self.passed, "gradients": self.gradients}
        self.back = Places(BACKWARD, maps=self.maps, kept=self.kept, **rest)
        if not parallel:  # Algorithm 1 has no such gradients
            for name in ("to_slot_key", "to_applicability", "to_null_rule"):
                self.back.of[name] = self.back.of["to_embedding"]
        powers = {"MP": power(m), "NP": power(n, least=16), "DP": power(d), "FP": power(f)}
        warps = max(1, min(8, max(CHUNK, powers["MP"]) * max(powers["DP"], powers["FP"]) // 512))
        self.sizes, self.options = {"M": m, "D": d, "F": f, **powers}, {"num_warps": warps}
        self.drops = {"DROPS": key.drops, "DROP_TENSOR": key.drop_tensor}
        self.forward = lru_cache(self._forward)
        self.backward = lru_cache(self._backward)

    # -- launches -----------------------------------------------------------------------------

    def _forward(self, first: bool) -> list[Steps]:
        """Those of a stage, in parts between which torch multiplies; the first makes the maps."""
        key, at = self.key, self.ahead
        may = {"SELF_CONTEXT": key.self_context, "MASKED": key.masked, "SOME": key.some}
        numbers, constants = (self.b, self.n, key.uniform_stride), {**self.sizes, **may}
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
        grid, numbers = (self.s * self.b,), (self.b, self.n, key.uniform_stride, int(later))
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
        grid = SUM.count(rows, self.f) + SUM.count(self.f, self.f), self.splits, self.s
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


class OnGPU:
    """The implementation of one algorithm; see `nps.kernels.rules.function.Implementation`."""

    def __init__(self, parallel: bool) -> None:
        self.parallel = parallel

    def plan(self, call: Call, values: Values) -> Plan:
        slots, features, uniform = values.slots, values.features, values.uniform
        dropout = values.dropout
        on_device = isinstance(dropout, Tensor)
        return plan_of(
            Key(
                self.parallel,
                slots.get_device(),
                slots.shape,
                None if features is None else features.shape,
                values.embedding.shape,
                values.select_key.shape,
                values.bias_in.shape,
                uniform.shape[-2],
                uniform.stride(-3),
                values.slot_mask is not None,
                values.rules is not None,
                on_device or dropout > 0,
                on_device,
                isinstance(values.temperature, Tensor),
                call.layer.self_context,
                call.tf32,
            )
        )

    def forward(self, call: Call, values: Values) -> tuple[list[Tensor], list[Tensor]]:
        """New slots and, if traced, scores and choices of each stage; the buffers."""
        values = _prepared(values)
        plan, slots = self.plan(call, values), values.slots
        stages = plan.key.stages
        with _device(slots):
            stream, given = _stream(slots), _given(call, values)
            maps, kept = plan.maps.empty(slots), plan.kept.empty(slots, stages)
            new = torch.empty_like(slots)
            at_maps, at_kept, size = base(maps), base(kept), plan.kept.size
            for k in range(stages):
                self._begin(plan, given, values, at_kept, k)
                here = further(at_kept, k * size)
                out = base(new)
                if k < stages - 1:
                    out = further(here, plan.kept.starts["after"])
                bases = *given, out, at_maps, here
                steps = plan.forward(k == 0)
                steps[0](stream, bases)
                if isinstance(plan.action, Joint):
                    view = partial(plan.kept.view, kept[k * size :])
                    plan.action.to_hidden(view, values.weight_in, values.bias_in)
                    steps[1](stream, bases)
                    plan.action.to_output(view, values.weight_out)
                    steps[2](stream, bases)
        traces = self._traces(plan, kept) if call.traced else []
        return [new, *traces], [maps, kept]

    def backward(
        self,
        call: Call,
        grads: Sequence[Tensor | None],
        values: Values,
        buffers: Sequence[Tensor],
        needs_slots: bool,
    ) -> list[Tensor | None]:
        """The gradients of the first values."""
        values, (maps, kept) = _prepared(values), buffers
        plan, slots = self.plan(call, values), values.slots
        stages, size = plan.key.stages, plan.kept.size
        outer = torch.zeros_like(slots) if grads[0] is None else ready(grads[0])
        with _device(slots):
            stream, given = _stream(slots), _given(call, values)
            passed, total = plan.passed.empty(slots), plan.gradients.empty(slots)
            to_slots = torch.empty_like(slots)
            to_features = None if plan.shared else torch.empty_like(values.features)
            at_maps, at_kept, at_passed, at_total = (
                base(maps),
                base(kept),
                base(passed),
                base(total),
            )
            at_slots = base(to_slots)
            into = at_slots, at_slots if to_features is None else base(to_features)
            g = base(outer)
            to_weights: list[Tensor] = []
            for k in reversed(range(stages)):
                self._begin(plan, given, values, at_kept, k)
                scores = [None, None]
                if call.traced:
                    scores = [x if x is None else ready(x) for x in grads[1 + 4 * k : 3 + 4 * k]]
                on_scores = (g if x is None else base(x) for x in scores)
                here = further(at_kept, k * size)
                bases = *given, g, *on_scores, *into, at_maps, here, at_passed, at_total
                wanted = scores[0] is not None, scores[1] is not None
                steps = plan.backward(*wanted, k < stages - 1, k == 0)
                steps[0](stream, bases)
                if isinstance(plan.action, Joint):
                    view = partial(plan.kept.view, kept[k * size :])
                    back = partial(plan.passed.view, passed)
                    plan.action.back_to_hidden(back, values.weight_out)
                    steps[1](stream, bases)
                    found = plan.action.back_to_x(view, back)
                    pairs = zip(to_weights, found, strict=True)
                    to_weights = [a + b for a, b in pairs] if to_weights else found
                    steps[2](stream, bases)
                g = at_slots
        views = torch._C._nn.unflatten_dense_tensors(total, plan.templates)
        if plan.gaps:
            views = [x for i, x in enumerate(views) if i not in plan.gaps]
        chosen = [*views[:5], *to_weights, *views[5:]]
        return [to_slots, to_features, *chosen, *[None] * (GRADIENTS - 2 - len(chosen))]

    def _begin(self, plan: Plan, given: list[Any], values: Values, at_kept: Any, k: int) -> None:
        """Set the bases that differ between stages."""
        if plan.key.stages == 1:
            return
        slots = base(values.slots)
        if k > 0:
            slots = further(at_kept, (k - 1) * plan.kept.size + plan.kept.starts["after"])
        given[SLOTS] = slots
        if plan.shared:
            given[FEATURES] = slots
        given[UNIFORM] = further(base(values.uniform), k * values.uniform.stride(-2))

    def _traces(self, plan: Plan, kept: Tensor) -> list[Tensor]:
        """For each stage both scores, then each slot's rule and context, -1 for none."""
        found = []
        for k in range(plan.key.stages):
            view = partial(plan.kept.view, kept[k * plan.kept.size :])
            rule, context, target = (view(x).long() for x in ("rule", "context", "target"))
            if self.parallel:
                fired = target >= 0
            else:
                slots = torch.arange(plan.m, device=kept.device)
                primary = torch.where(target >= 0, view("primary").long(), -1)
                fired = primary.unsqueeze(-1) == slots
                rule, context = rule.unsqueeze(-1), context.unsqueeze(-1)
            found += [view("scores"), view("matches")]
            found += [torch.where(fired, rule, -1), torch.where(fired, context, -1)]
        return found


SEQUENTIAL, PARALLEL = OnGPU(parallel=False), OnGPU(parallel=True)


def _prepared(values: Values) -> Values:
    """Tensors as the kernels expect them, the noise in rows at equal distances."""
    found = [x if x is None else ready(x) for x in values[:UNIFORM]]
    uniform, mask, rules, temperature, dropout = values[UNIFORM:]
    if not uniform.is_contiguous():
        rows, even = uniform.stride(-3), uniform.stride(-1) == 1 and DIRECT
        if uniform.dim() == 4 and uniform.stride(0) != uniform.shape[1] * rows:
            even = False
        uniform = uniform if even else uniform.contiguous()
    uniform = uniform.float()
    mask, rules = (x if x is None else ready(x) for x in (mask, rules))
    return Values(*found, uniform, mask, rules, _setting(temperature), _setting(dropout))


def _setting(value: float | Tensor) -> float | Tensor:
    return ready(value.float()) if isinstance(value, Tensor) else float(value)


def _given(call: Call, values: Values) -> list[Any]:
    """The bases of the values; absent ones are never read, and any address will do."""
    slots = base(values.slots)
    found = [slots if x is None else base(x) for x in values]
    return [*found, float(call.null_handicap)]


def _stream(x: Tensor) -> int:
    return torch._C._cuda_getCurrentRawStream(x.get_device()) if x.is_cuda else 0


class _Nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def _device(x: Tensor) -> Any:
    """The tensor's device made current, which it mostly is already."""
    if not x.is_cuda or torch.cuda.current_device() == x.get_device():
        return _Nothing()
    return torch.cuda.device(x.device)
