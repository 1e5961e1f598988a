"""The stages of a training call as one autograd function with a gradient of its own.

At the paper's sizes a stage costs its operations, not its arithmetic, and autograd doubles them.
`cpu.py` computes the stages and their gradient on a CPU, `gpu.py` on a GPU, each for one model or
for S models side by side, so that vmap over models is one call. Second derivatives are those of
the plain form, the layer's own `stage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from nps.kernels.rules.inputs import GRADIENTS, Values
from nps.rules.allowed import Allowed
from nps.rules.layer import RuleLayer

COUNT = len(Values._fields)
PATHS = {
    "embedding": "rules.embedding",
    "select_key": "select.key.out.weight",
    "select_query": "select.query.out.weight",
    "bind_query": "bind.query.out.weight",
    "bind_key": "bind.key.out.weight",
    "weight_in": "rules.weight_in",
    "bias_in": "rules.bias_in",
    "weight_out": "rules.weight_out",
    "bias_out": "rules.bias_out",
    "slot_key": "slot_key.out.weight",
    "applicability": "rules.applicability",
    "null_rule": "null_rule",
    "retired": "rules.retired",
}
"""Where the values lie in a layer's state."""


class Implementation(Protocol):
    """All stages of an algorithm on one kind of device: in `cpu` or in `gpu`."""

    def forward(self, call: Call, values: Values) -> tuple[list[Tensor], list[Any]]:
        """The outputs of `apply`, and tensors (or None) that `backward` needs beside the values."""

    def backward(
        self,
        call: Call,
        grads: Sequence[Tensor | None],
        values: Values,
        kept: Sequence[Any],
        needs_slots: bool,
    ) -> list[Tensor | None]:
        """From the gradients of the outputs to those of the first values."""


class Call(NamedTuple):
    """Non-tensor settings of a call."""

    layer: RuleLayer
    implementation: Implementation
    traced: bool
    """Whether the outputs include scores and choices of every stage."""
    tf32: bool
    """Whether products on a GPU may round to TF32."""
    null_handicap: float = 0.0
    stacked: bool = False
    """Whether the values have a leading dimension of models."""

    def reference(self, values: Values) -> tuple[Tensor, ...]:
        """The differentiable outputs from the layer's own steps."""
        module = _Plain(self.layer, self.traced)
        found = values._asdict()
        state = {f"layer.{path}": found[name] for name, path in PATHS.items()}
        state = {path: x for path, x in state.items() if x is not None}
        given = values.slots, values.features, values.uniform, values.slot_mask, values.allowed
        settings = values.temperature, values.dropout
        outputs: tuple[Tensor, ...] = functional_call(module, state, (*given, *settings))
        return outputs


class _Plain(nn.Module):
    """The layer's own stages as a module, so that `functional_call` can exchange its tensors."""

    def __init__(self, layer: RuleLayer, traced: bool) -> None:
        super().__init__()
        self.layer, self.traced = layer, traced

    def forward(
        self,
        slots: Tensor,
        features: Tensor | None,
        uniform: Tensor,
        slot_mask: Tensor | None,
        rules: Tensor | None,
        temperature: float | Tensor,
        dropout: float | Tensor,
    ) -> tuple[Tensor, ...]:
        layer, outputs, allowed = self.layer, [], Allowed(slot_mask, rules)
        before = layer.temperature, layer.dropout
        layer.temperature, layer.dropout = temperature, dropout  # those of the call, not of now
        try:
            shares = layer._shares(slots.shape[-2])._replace(stages=uniform.shape[-2])
            for noise in shares.of_stages(uniform):
                seen = slots if features is None else features
                slots, choices = layer.stage(slots, seen, allowed, noise)
                if self.traced:
                    outputs += [choices.rule_scores, choices.context_scores]
        finally:
            layer.temperature, layer.dropout = before
        return slots, *outputs


def apply(call: Call, values: Values) -> tuple[Tensor, ...]:
    """New slots; if traced, for each stage rule scores, context scores, rules and contexts."""
    function = CallOfModels if torch._C._are_functorch_transforms_active() else PlainCall
    with _exact(values.slots):
        outputs: tuple[Tensor, ...] = function.apply(call, *values)
    return outputs


NOTHING = nullcontext()


def _exact(like: Tensor) -> AbstractContextManager[None]:
    """Without autocast, which would reach the products in both directions."""
    device = "cuda" if like.is_cuda else "cpu"
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else NOTHING


def _choices(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs without gradients: two of the four of each stage."""
    return [x for k, x in enumerate(outputs[1:]) if k % 4 > 1]


class PlainCall(torch.autograd.Function):
    """The call outside of torch.func: what the gradient needs stays inside."""

    @staticmethod
    def forward(ctx: Any, call: Call, *values: Any) -> tuple[Tensor, ...]:
        outputs, kept = call.implementation.forward(call, Values(*values))
        *tensors, temperature, dropout = values
        settings = [x if isinstance(x, Tensor) else None for x in (temperature, dropout)]
        ctx.call, ctx.settings = call, (temperature, dropout)
        ctx.save_for_backward(*tensors, *settings, *kept)
        ctx.set_materialize_grads(False)
        if call.traced:
            ctx.mark_non_differentiable(*_choices(outputs))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call, saved = ctx.call, ctx.saved_tensors
        values = Values(*saved[: COUNT - 2], *ctx.settings)
        with _exact(values.slots):
            if torch.is_grad_enabled():
                found = CallGradient.apply(call, len(grads), *grads, *values)
            else:
                needs = ctx.needs_input_grad
                kept, run = saved[COUNT:], call.implementation
                found = run.backward(call, grads, values, kept, needs[1] or needs[2])
        return None, *found, *[None] * (COUNT - GRADIENTS)


class CallOfModels(torch.autograd.Function):
    """The call under torch.func. Its backward computes the stages again: torch.func allows only
    outputs to be kept, and in training vmap lies outside of autograd, where `PlainCall` is taken.
    """

    @staticmethod
    def forward(call: Call, *values: Any) -> tuple[Tensor, ...]:
        return tuple(call.implementation.forward(call, Values(*values))[0])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        if inputs[0].traced:
            ctx.mark_non_differentiable(*_choices(output))
        _save(ctx, inputs[0], inputs[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call, values = _saved(ctx)
        with _exact(values[0]):
            found = CallGradient.apply(call, len(grads), *grads, *values)
        return None, *found, *[None] * (COUNT - GRADIENTS)

    @staticmethod
    def vmap(info: Any, in_dims: Any, call: Call, *values: Any) -> tuple[Any, Any]:
        stacked = _stack(info, in_dims[1:], call, values)
        outputs = apply(call._replace(stacked=True), Values(*stacked))
        return _unstack(info, call, outputs)


class CallGradient(torch.autograd.Function):
    """(call, number of outputs, their gradients, values) -> gradients of the values."""

    @staticmethod
    def forward(call: Call, count: int, *inputs: Any) -> tuple[Tensor | None, ...]:
        values = Values(*inputs[count:])
        with torch.no_grad():
            _, kept = call.implementation.forward(call, values)
            grads = inputs[:count]
            return tuple(call.implementation.backward(call, grads, values, kept, True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.count = inputs[1]
        _save(ctx, inputs[0], inputs[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call, saved = _saved(ctx)
        grads_in, given = saved[: ctx.count], saved[ctx.count :]
        # Of the outputs (new slots, then four a stage) the choices have no gradient.
        smooth = [k for k in range(ctx.count) if k == 0 or (k - 1) % 4 < 2]
        used = [k for k in smooth if grads_in[k] is not None]
        places = [i for i in range(GRADIENTS) if isinstance(given[i], Tensor)]

        def outputs(*tensors: Tensor) -> tuple[Tensor, ...]:
            full = list(given)
            for i, x in zip(places, tensors, strict=True):
                full[i] = x
            found = _reference(call, full)
            return tuple(found[smooth.index(k)] for k in used)

        def gradient(
            weights: tuple[Tensor, ...], tensors: tuple[Tensor, ...]
        ) -> tuple[Tensor, ...]:
            first: tuple[Tensor, ...] = vjp(outputs, *tensors)[1](weights)
            return first

        weights, tensors = tuple(grads_in[k] for k in used), tuple(given[i] for i in places)
        first, again = vjp(gradient, weights, tensors)[:2]
        outer = tuple(
            torch.zeros_like(x) if grads[i] is None else grads[i]
            for i, x in zip(places, first, strict=True)
        )
        to_weights, to_tensors = again(outer)
        result: list[Tensor | None] = [None] * (ctx.count + COUNT)
        for k, x in zip(used, to_weights, strict=True):
            result[k] = x
        for i, x in zip(places, to_tensors, strict=True):
            result[ctx.count + i] = x
        return None, None, *result

    @staticmethod
    def vmap(info: Any, in_dims: Any, call: Call, count: int, *inputs: Any) -> tuple[Any, Any]:
        stacked = _stack(info, in_dims[2:], call, inputs)
        outputs = CallGradient.apply(call._replace(stacked=True), count, *stacked)
        return _unstack(info, call, outputs)


def _reference(call: Call, values: list[Any]) -> tuple[Tensor, ...]:
    if not call.stacked:
        return call.reference(Values(*values))
    dims = tuple(0 if isinstance(x, Tensor) else None for x in values)
    each: tuple[Tensor, ...] = vmap(lambda *v: call.reference(Values(*v)), in_dims=dims)(*values)
    return each


def _save(ctx: Any, call: Call, values: Sequence[Any]) -> None:
    """Tensors go where autograd and torch.func look for them, everything else beside them."""
    ctx.call = call
    ctx.others = [None if isinstance(x, Tensor) else x for x in values]
    ctx.save_for_backward(*(x if isinstance(x, Tensor) else None for x in values))


def _saved(ctx: Any) -> tuple[Call, list[Any]]:
    pairs = zip(ctx.saved_tensors, ctx.others, strict=True)
    return ctx.call, [other if tensor is None else tensor for tensor, other in pairs]


def _stack(info: Any, in_dims: Any, call: Call, values: Any) -> list[Any]:
    """The mapped dimension becomes that of the models, or joins it."""

    def one(x: Any, dim: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        x = x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        return x.flatten(0, 1) if call.stacked else x

    return [one(x, dim) for x, dim in zip(values, in_dims, strict=True)]


def _unstack(info: Any, call: Call, outputs: Sequence[Any]) -> tuple[Any, Any]:
    if call.stacked:
        outputs = [x if x is None else x.unflatten(0, (info.batch_size, -1)) for x in outputs]
    return tuple(outputs), tuple(None if x is None else 0 for x in outputs)
