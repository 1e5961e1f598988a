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
from nps.kernels.rules.function import Call, Implementation, apply
from nps.kernels.rules.inputs import Values
from nps.rules.actions import MLPRules
from nps.rules.allowed import Allowed
from nps.rules.layer import RuleLayer
from nps.rules.parallel import ParallelNPS
from nps.rules.ruleset import RuleSet
from nps.rules.sequential import SequentialNPS
from nps.rules.trace import Trace

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["run", "supported"]

STEPS = (
    "stage",
    "select_rule",
    "bind_context",
    "apply_rule",
    "bids",
    "_update",
    "_act",
    "_run",
    "_choices",
    "_shares",
)
"""Methods that an accelerated stage stands in for."""
STEPS_SET = frozenset(STEPS)
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
    rules, config = layer.rules, layer.config
    if torch.compiler.is_compiling() or _algorithm(type(layer)) is None:
        return False
    if type(rules) is not MLPRules or rules.hidden_layers > 1 or layer.alone:
        return False
    if layer.context_gradient != "slot" or layer.context_dropout:
        return False
    if config.query != "linear" or config.context_query not in (None, "linear"):
        return False
    if rules._forward_hooks or rules._forward_pre_hooks or not STEPS_SET.isdisjoint(vars(layer)):
        return False
    if slots.dtype not in (torch.float32, torch.float64) or slots.numel() == 0:
        return False
    if rules.weight_in.dtype != slots.dtype or rules.embedding.dtype != slots.dtype:
        return False
    if slots.is_cuda:
        return gpu.supported(slots, rules.hidden_dim, len(rules), layer.selection_dim)
    return slots.device.type == "cpu"


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
        tf32=autocast or torch.backends.cuda.matmul.allow_tf32,
    )
    tensor = rules.tensor
    values = Values(
        _flat(slots, 2),
        None if features is None else _flat(features, 2),
        tensor("embedding"),
        layer.select.key.out.weight,
        layer.select.query.out.weight,
        layer.bind.query.out.weight,
        layer.bind.key.out.weight,
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


def _of_null_rule(layer: RuleLayer, rules: RuleSet) -> tuple[Tensor | None, ...]:
    if not isinstance(layer, ParallelNPS):
        return (None,) * 4
    key, applicability = layer.slot_key.out.weight, rules.tensor("applicability")
    return key, applicability, layer.null_rule, rules.retired


def _flat(x: Tensor, dims: int) -> Tensor:
    """One batch dimension before the last `dims`."""
    return x if x.dim() == 1 + dims else x.reshape(-1, *x.shape[-dims:])


def _trace(
    rule_scores: Tensor, context_scores: Tensor, rule: Tensor, context: Tensor
) -> Trace:
    fired = (rule >= 0).unsqueeze(-1)
    return Trace(rule, context, rule_scores, torch.where(fired, context_scores, 0.0))
