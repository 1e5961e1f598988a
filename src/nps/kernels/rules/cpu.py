"""A call of either algorithm in torch operations, stage by stage, and its gradient by hand.

`sequential.py` and `parallel.py` say what a stage is; `gpu.py` does the same with Triton kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from nps.kernels.rules import maps, parallel, sequential
from nps.kernels.rules.inputs import GRADIENTS, Gradients, Stage, Values

if TYPE_CHECKING:
    from nps.kernels.rules.function import Call


class Algorithm(Protocol):
    """One stage: `sequential` or `parallel`."""

    @property
    def forward(self) -> Callable[[Stage], tuple[Any, ...]]:
        """New slots, then what `backward` and `trace` need."""

    @property
    def backward(self) -> Callable[..., Gradients]:
        """From the stage, the gradients (of new slots and scores) and the kept to its gradients."""

    @property
    def trace(self) -> Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]:
        """From the stage and the kept to rule scores, context scores, and each slot's choices."""


class OnCPU:
    """The implementation of one algorithm; see `nps.kernels.rules.function.Implementation`."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm

    def forward(self, call: Call, values: Values) -> tuple[list[Tensor], list[Any]]:
        """New slots and, if traced, scores and choices of each stage; the maps and the kept."""
        of_values = maps.forward(values)
        traces: list[Tensor] = []
        slots, kept = values.slots.contiguous(), list(of_values)
        for k in range(values.uniform.shape[-2]):
            stage = _stage(call, values, of_values, k, slots)
            new, *rest = self.algorithm.forward(stage)
            kept += [slots, *rest]
            if call.traced:
                traces += self.algorithm.trace(stage, *rest)
            slots = new
        return [slots, *traces], kept

    def backward(
        self,
        call: Call,
        grads: Sequence[Tensor | None],
        values: Values,
        kept: Sequence[Any],
        needs_slots: bool,
    ) -> list[Tensor | None]:
        """The gradients of the first values."""
        of_values, kept = maps.Maps(*kept[:4]), kept[4:]
        stages = values.uniform.shape[-2]
        size = len(kept) // stages
        g = torch.zeros_like(kept[0]) if grads[0] is None else grads[0]
        total: Gradients | None = None
        for k in reversed(range(stages)):
            slots, *rest = kept[k * size : (k + 1) * size]
            on_scores = grads[1 + 4 * k : 3 + 4 * k] if call.traced else (None, None)
            stage = _stage(call, values, of_values, k, slots)
            if k == 0 and not needs_slots:
                stage = stage._replace(needs_slots=False)
            found = self.algorithm.backward(stage, (g, *on_scores), *rest)
            g = found.slots  # type: ignore[assignment]
            total = found if total is None else total.plus(found)
        assert total is not None
        to_maps = maps.backward(values, of_values, total.rule_map, total.bind_map)
        chosen = [*to_maps[:5], *total[4:], *to_maps[5:]]
        return [g, total.features, *chosen, *[None] * (GRADIENTS - 2 - len(chosen))]


def _stage(call: Call, values: Values, of_values: maps.Maps, k: int, slots: Tensor) -> Stage:
    """The inputs of stage k."""
    return Stage(
        slots,
        slots if values.features is None else values.features.contiguous(),
        of_values.rule_map,
        of_values.bind_map,
        values.weight_in,
        values.bias_in,
        values.weight_out,
        values.bias_out,
        values.uniform[..., k, :],
        values.slot_mask,
        values.allowed,
        values.temperature,
        values.dropout,
        call.layer.self_context,
        call.null_handicap,
    )


SEQUENTIAL, PARALLEL = OnCPU(sequential), OnCPU(parallel)
