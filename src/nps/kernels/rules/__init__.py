"""The stages of a training call, accelerated: where that applies, and the call.

It serves the paper's rules (linear queries, MLPs with one hidden layer) with any features, masks,
disabled rules, dropout of scores and temperature, alone or stacked by vmap. Autocast changes
nothing: scores and actions are computed in float32. Everything else takes the layer's own steps,
which give the same. A GPU needs Triton, and sizes that its kernels can hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nps.kernels.rules import cpu, gpu
from nps.kernels.rules.dispatch import only_fired
from nps.kernels.rules.function import Call, Implementation, apply
from nps.kernels.rules.inputs import Values
from nps.rules.actions import MLPRules
from nps.rules.allowed import Allowed
from nps.rules.bind import Bind
from nps.rules.layer import RuleLayer
from nps.rules.parallel import ParallelNPS
from nps.rules.projection import Projection
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
ON_CPU: dict[type, Implementation] = {SequentialNPS: cpu.SEQUENTIAL, ParallelNPS: cpu.PARALLEL}
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
    algorithm = _algorithm(type(layer))
    if algorithm is None or not STEPS.isdisjoint(layer.__dict__):
        return False
    modules: dict[str, Any] = layer._modules  # the attributes of modules are slow to look up
    rules, select, bind = modules["rules"], modules["select"], modules["bind"]
    kinds = type(rules), type(select), type(bind)
    if kinds != (MLPRules, Select, Bind):
        return False
    if rules.hidden_layers > 1 or layer.context_gradient != "slot" or layer.context_dropout:
        return False
    if layer.without_context:
        return False
    of_select, of_bind = select._modules.get, bind._modules.get
    projections = [of_select("query"), of_select("key"), of_bind("query"), of_bind("key")]
    if algorithm is ParallelNPS:
        projections.append(modules.get("slot_key"))
    for projection in projections:
        if type(projection) is not Projection or projection._modules.get("hidden") is not None:
            return False  # not one matrix
        out = projection._modules.get("out")
        if not isinstance(out, nn.Linear) or out.weight.dtype != slots.dtype:
            return False
    for module in (rules, select, bind, *projections):
        if module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__:
            return False  # someone watches or replaces a call that the accelerated form omits
    embedding, dtype = rules._parameters["embedding"], slots.dtype
    if dtype not in (torch.float32, torch.float64) or slots.numel() == 0:
        return False
    if rules._parameters["weight_in"].dtype != dtype or embedding.dtype != dtype:
        return False
    if slots.is_cuda:
        sizes = rules.hidden_dim, len(embedding), layer.selection_dim, layer.key_dim
        return gpu.supported(slots, *sizes)
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
        noise = uniform[..., k : k + 1, :].contiguous()
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
    kind, shape = _algorithm(type(layer)), slots.shape
    modules: dict[str, Any] = layer._modules
    call = Call(
        layer,
        (ON_GPU if slots.is_cuda else ON_CPU)[kind],  # type: ignore[index]
        traced,
        torch.backends.cuda.matmul.allow_tf32,
        getattr(layer, "null_handicap", 0.0),
    )
    rules, select, bind = modules["rules"], modules["select"], modules["bind"]
    tensor = rules.tensor
    null_rule: Any = layer._parameters.get("null_rule")
    of_null_rule: FourTensors = None, None, None, None
    if null_rule is not None:
        key = _weight(layer, "slot_key")
        of_null_rule = key, tensor("applicability"), null_rule, rules.retired
    values = Values(
        _flat(slots, 2),
        None if features is None else _flat(features, 2),
        tensor("embedding"),
        _weight(select, "key"),
        _weight(select, "query"),
        _weight(bind, "query"),
        _weight(bind, "key"),
        tensor("weight_in"),
        tensor("bias_in"),
        tensor("weight_out"),
        tensor("bias_out"),
        *of_null_rule,
        None if allowed.slots is None else _flat(allowed.slots, 1),
        allowed.rules,
        _flat(uniform, 2),
        layer.temperature,
        layer.dropout,
    )
    new, *found = apply(call, values)
    if len(shape) != 3:
        new, found = new.view(shape), [x.view(*shape[:-2], *x.shape[1:]) for x in found]
    return new, [_trace(*found[k : k + 4]) for k in range(0, len(found), 4)]


def _weight(module: Any, projection: str) -> Tensor:
    """The matrix of a linear projection; a parametrized one is no longer among the parameters."""
    linear = module._modules[projection]._modules["out"]
    weight: Tensor | None = linear._parameters.get("weight")
    return linear.weight if weight is None else weight


def _flat(x: Tensor, dims: int) -> Tensor:
    """One batch dimension before the last `dims`."""
    return x if x.dim() == 1 + dims else x.reshape(-1, *x.shape[-dims:])


def _trace(rule_scores: Tensor, context_scores: Tensor, rule: Tensor, context: Tensor) -> Trace:
    fired = (rule >= 0).unsqueeze(-1)
    return Trace(rule, context, rule_scores, torch.where(fired, context_scores, 0.0))
