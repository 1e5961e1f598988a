"""The stages of a training call, accelerated: where that applies, and the call.

It serves the paper's rules (linear queries, MLPs with one hidden layer) with any features, masks,
disabled rules, dropout of scores and temperature, alone or stacked by vmap. Scores and actions are
computed in float32, under autocast too (there the products may use TF32). Everything else takes
the layer's own steps, which give the same. A GPU needs Triton, and sizes that its kernels can hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.kernels.rules import gpu, parallel, sequential
from nps.kernels.rules.dispatch import only_fired
from nps.kernels.rules.function import Call, Implementation, apply
from nps.kernels.rules.inputs import Values
from nps.rules.actions import MLPRules
from nps.rules.allowed import Allowed
from nps.rules.bind import Bind
from nps.rules.layer import RuleLayer
from nps.rules.parallel import ParallelNPS
from nps.rules.ruleset import RuleSet
from nps.rules.select import Select
from nps.rules.sequential import SequentialNPS
from nps.rules.trace import Trace

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["only_fired", "run", "supported"]

FourTensors = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]
STEPS = frozenset(
    {"stage", "select_rule", "bind_context", "apply_rule", "bids", "forward"}
    | {"_update", "_act", "_run", "_choices", "_shares", "_features"}
)
"""Methods that an accelerated call stands in for."""
ON_CPU: dict[type, Implementation] = {SequentialNPS: sequential, ParallelNPS: parallel}
ON_GPU: dict[type, Implementation] = {SequentialNPS: gpu.SEQUENTIAL, ParallelNPS: gpu.PARALLEL}


@cache
def _algorithm(kind: type[RuleLayer]) -> type[RuleLayer] | None:
    """The stock layer whose steps this class has, all of them; None if it has its own."""
    for stock in (SequentialNPS, ParallelNPS):
        if issubclass(kind, stock):
            same = (getattr(kind, step, None) is getattr(stock, step, None) for step in STEPS)
            return stock if all(same) else None
    return None


def supported(layer: RuleLayer, slots: Tensor) -> bool:
    """True if the accelerated stages serve this layer and these slots."""
    if _algorithm(type(layer)) is None:
        return False
    rules, select, bind, config = layer.rules, layer.select, layer.bind, layer.config
    if type(rules) is not MLPRules or type(select) is not Select or type(bind) is not Bind:
        return False
    if rules.hidden_layers > 1 or layer.context_gradient != "slot" or layer.context_dropout:
        return False
    if layer.without_context:
        return False
    if config.query != "linear" or config.context_query not in (None, "linear"):
        return False
    if not STEPS.isdisjoint(layer.__dict__) or _hooked(rules, select, bind):
        return False
    if slots.dtype not in (torch.float32, torch.float64) or slots.numel() == 0:
        return False
    if rules.weight_in.dtype != slots.dtype or rules.embedding.dtype != slots.dtype:
        return False
    if slots.is_cuda:
        return gpu.supported(slots, rules.hidden_dim, len(rules), layer.selection_dim)
    return slots.device.type == "cpu"


def _hooked(rules: RuleSet, select: Select, bind: Bind) -> bool:
    """True if someone watches the modules that the accelerated form does not call."""
    modules = (rules, select, select.query, select.key, bind, bind.query, bind.key)
    return any(x._forward_hooks or x._forward_pre_hooks for x in modules)


def run(
    layer: RuleLayer,
    slots: Float[Tensor, "*batch M D"],
    features: Callable[[Tensor], Tensor] | Tensor | None,
    allowed: Allowed,
    uniform: Float[Tensor, "*batch K U"],
    traced: bool,
) -> tuple[Tensor, list[Trace]]:
    """The slots after all stages, and on request a trace of each.

    The stages are one node of the autograd graph, unless features depend on the slots between them.
    """
    if not callable(features):
        return _run(layer, slots, features, allowed, uniform, traced)
    traces: list[Trace] = []
    for k in range(layer.stages):
        noise = uniform[..., k : k + 1, :]
        slots, found = _run(layer, slots, features(slots), allowed, noise, traced)
        traces += found
    return slots, traces


def _run(
    layer: RuleLayer,
    slots: Tensor,
    features: Tensor | None,
    allowed: Allowed,
    uniform: Tensor,
    traced: bool,
) -> tuple[Tensor, list[Trace]]:
    kind, rules, shape = _algorithm(type(layer)), layer.rules, slots.shape
    autocast = torch.is_autocast_enabled(slots.device.type)
    call = Call(
        layer,
        (ON_GPU if slots.is_cuda else ON_CPU)[kind],  # type: ignore[index]
        traced,
        autocast or torch.backends.cuda.matmul.allow_tf32,
        getattr(layer, "null_handicap", 0.0),
    )
    tensor, select, bind = rules.tensor, layer.select, layer.bind
    values = Values(
        _flat(slots, 2),
        None if features is None else _flat(features, 2),
        tensor("embedding"),
        select.key.out.weight,
        select.query.out.weight,
        bind.query.out.weight,
        bind.key.out.weight,
        tensor("weight_in"),
        tensor("bias_in"),
        tensor("weight_out"),
        tensor("bias_out"),
        *_of_null_rule(layer, rules),
        _flat(uniform, 2),
        None if allowed.slots is None else _flat(allowed.slots, 1),
        allowed.rules,
        layer.temperature,
        layer.dropout,
    )
    if autocast:
        with torch.autocast(slots.device.type, enabled=False):
            new, *found = apply(call, values)
    else:
        new, *found = apply(call, values)
    if len(shape) != 3:
        new, found = new.view(shape), [x.view(*shape[:-2], *x.shape[1:]) for x in found]
    return new, [_trace(*found[k : k + 4]) for k in range(0, len(found), 4)]


def _of_null_rule(layer: RuleLayer, rules: RuleSet) -> FourTensors:
    if not isinstance(layer, ParallelNPS):
        return None, None, None, None
    key, applicability = layer.slot_key.out.weight, rules.tensor("applicability")
    return key, applicability, layer.null_rule, rules.retired


def _flat(x: Tensor, dims: int) -> Tensor:
    """One batch dimension before the last `dims`."""
    return x if x.dim() == 1 + dims else x.reshape(-1, *x.shape[-dims:])


def _trace(rule_scores: Tensor, context_scores: Tensor, rule: Tensor, context: Tensor) -> Trace:
    fired = (rule >= 0).unsqueeze(-1)
    return Trace(rule, context, rule_scores, torch.where(fired, context_scores, 0.0))
