"""A call of either algorithm on a GPU, all of it in Triton kernels but for a few large products.

It does what `cpu.py` does. What is launched depends on sizes alone (`plan.py`): a call allocates
buffers and computes addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.kernels.rules.inputs import GRADIENTS, Values
from nps.kernels.rules.joint import Joint
from nps.kernels.rules.launch import DIRECT, LARGEST_TILE, base, further, installed, power, ready
from nps.kernels.rules.plan import CHUNK, GIVEN, MAP_TILE, Key, Plan, plan_of

if TYPE_CHECKING:
    from nps.kernels.rules.function import Call

SLOTS, FEATURES, UNIFORM = (GIVEN.index(x) for x in ("slots", "features", "uniform"))
AS_IT_IS = nullcontext()


def supported(slots: Tensor, h: int, n: int, f: int, key: int) -> bool:
    """True if the kernels can hold a stage of these sizes."""
    if not installed() or slots.dtype != torch.float32:
        return False
    m, d = slots.shape[-2:]
    tiles = [(m, d), (m, f), (m, n), (m, m), (CHUNK, h), (CHUNK, d), (CHUNK, f), (MAP_TILE, key)]
    return all(power(a) * power(b) <= LARGEST_TILE for a, b in tiles)


class OnGPU:
    """The implementation of one algorithm; see `nps.kernels.rules.function.Implementation`."""

    def __init__(self, parallel: bool) -> None:
        self.parallel = parallel

    def plan(self, call: Call, values: Values) -> Plan:
        dropout, features = values.dropout, values.features
        return plan_of(
            Key(
                self.parallel,
                values.slots.get_device(),
                values.slots.shape,
                None if features is None else features.shape,
                values.embedding.shape,
                values.select_key.shape,
                values.bias_in.shape,
                values.uniform.shape,
                values.slot_mask is not None,
                values.allowed is not None,
                isinstance(dropout, Tensor) or dropout > 0,  # on the device it is not read
                isinstance(dropout, Tensor),
                isinstance(values.temperature, Tensor),
                call.layer.self_context,
                call.tf32,
            )
        )

    def forward(self, call: Call, values: Values) -> tuple[list[Tensor], list[Tensor]]:
        """New slots and, if traced, scores and choices of each stage; the buffers."""
        values, given = _prepared(call, values)
        plan, slots = self.plan(call, values), values.slots
        with _device(slots):
            stream = _stream(slots)
            maps, kept = plan.maps.empty(slots), plan.kept.empty(slots, plan.stages)
            new = torch.empty_like(slots)
            at_maps, at_kept = base(maps), base(kept)
            for k in range(plan.stages):
                here, out = at_kept, base(new)
                if plan.stages > 1:
                    here = self._begin(plan, given, values, at_kept, k)
                if k < plan.stages - 1:
                    out = further(here, plan.kept.starts["after"])
                bases = *given, out, at_maps, here
                steps = plan.forward(k == 0)
                if isinstance(plan.action, Joint):
                    launch = [partial(step, stream, bases) for step in steps]
                    view = partial(plan.kept.view, kept[k * plan.kept.size :])
                    plan.action.forward(launch, view, values)
                else:
                    steps[0](stream, bases)
        traces = self._traces(plan, kept) if call.traced else []
        return [new, *traces], [maps, kept]

    def backward(
        self,
        call: Call,
        grads: Sequence[Tensor | None],
        values: Values,
        kept: Sequence[Any],
        needs_slots: bool,
    ) -> list[Tensor | None]:
        """The gradients of the first values."""
        values, given = _prepared(call, values)
        plan, slots = self.plan(call, values), values.slots
        g = torch.zeros_like(slots) if grads[0] is None else ready(grads[0])
        with _device(slots):
            stream = _stream(slots)
            passed, total = plan.passed.empty(slots), plan.gradients.empty(slots)
            to_slots = torch.empty_like(slots)
            to_features = None if values.features is None else torch.empty_like(values.features)
            at_maps, at_kept, *rest = (base(x) for x in (*kept, passed, total, to_slots, g))
            *buffers, at_slots, outer = rest
            into = at_slots, at_slots if to_features is None else base(to_features)
            to_weights: list[Tensor] = []
            for k in reversed(range(plan.stages)):
                here = at_kept
                if plan.stages > 1:
                    here = self._begin(plan, given, values, at_kept, k)
                scores: list[Tensor | None] = [None, None]
                if call.traced:
                    scores = [x if x is None else ready(x) for x in grads[1 + 4 * k : 3 + 4 * k]]
                on_scores = (outer if x is None else base(x) for x in scores)
                bases = *given, outer, *on_scores, *into, at_maps, here, *buffers
                wanted = scores[0] is not None, scores[1] is not None
                steps = plan.backward(*wanted, k < plan.stages - 1, k == 0)
                if isinstance(plan.action, Joint):
                    launch = [partial(step, stream, bases) for step in steps]
                    view = plan.view_of(kept[1][k * plan.kept.size :], passed)
                    found = plan.action.backward(launch, view, values)
                    if to_weights:
                        found = [a + b for a, b in zip(to_weights, found, strict=True)]
                    to_weights = found
                else:
                    steps[0](stream, bases)
                outer = at_slots
        views = plan.gradients.views(total)
        chosen = [*views[:5], *to_weights, *views[5:]]
        return [to_slots, to_features, *chosen, *[None] * (GRADIENTS - 2 - len(chosen))]

    def _begin(self, plan: Plan, given: list[Any], values: Values, kept: Any, k: int) -> Any:
        """Set the bases that differ between stages; that of the stage's own buffer."""
        slots = base(values.slots)
        if k > 0:
            slots = further(kept, (k - 1) * plan.kept.size + plan.kept.starts["after"])
        given[SLOTS] = slots
        if values.features is None:
            given[FEATURES] = slots
        given[UNIFORM] = further(base(values.uniform), k * values.uniform.shape[-1])
        return further(kept, k * plan.kept.size)

    def _traces(self, plan: Plan, kept: Tensor) -> list[Tensor]:
        """For each stage both scores, then each slot's rule and context, -1 for none."""
        found = []
        for k in range(plan.stages):
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


def _prepared(call: Call, values: Values) -> tuple[Values, list[Any]]:
    """The values as the kernels expect them, mostly as they come, and their bases.

    Values that are absent are never read: any address will do.
    """
    tensors: list[Any] = list(values[:UNIFORM])
    uniform, temperature, dropout = values.uniform, values.temperature, values.dropout
    handicap = float(call.null_handicap)
    if DIRECT and type(temperature) is float and type(dropout) is float:
        slots, bits, bases = values.slots.data_ptr(), 0, []
        for x in tensors:
            if x is None:
                bases.append(slots)
            elif x.is_contiguous():
                bases.append(x.data_ptr())
                bits |= bases[-1]
            else:
                bits = 1
                break
        if not bits & 15 and uniform.is_contiguous() and uniform.dtype == torch.float32:
            return values, [*bases, uniform.data_ptr(), temperature, dropout, handicap]
    tensors = [x if x is None else ready(x) for x in tensors]
    tensors += [uniform.float().contiguous(), _setting(temperature), _setting(dropout)]
    values = Values(*tensors)
    return values, [base(values.slots if x is None else x) for x in (*values, handicap)]


def _setting(value: float | Tensor) -> float | Tensor:
    return ready(value.float()) if isinstance(value, Tensor) else float(value)


def _stream(x: Tensor) -> int:
    return torch._C._cuda_getCurrentRawStream(x.get_device()) if x.is_cuda else 0


def _device(x: Tensor) -> AbstractContextManager[Any]:
    """The tensor's device made current, which it mostly is already."""
    if not x.is_cuda or torch.cuda.current_device() == x.get_device():
        return AS_IT_IS
    return torch.cuda.device(x.device)
