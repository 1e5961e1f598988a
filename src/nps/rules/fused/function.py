"""One stage of either algorithm as one function with a gradient of its own.

At the paper's sizes a stage costs its operations, not its arithmetic, and autograd doubles them.
`sequential.py` and `parallel.py` say what a stage computes and what its gradient is, `action.py`
the same of the rules, each for one model or S side by side, so that vmap over models is one call.
Second derivatives are those of the stage written out in ordinary operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from nps.rules.fused.inputs import GRADIENTS, Inputs
from nps.rules.stage import Choices

OUTPUTS = 3
"""New slots, rule scores and context scores: the outputs that have gradients."""
CHOICES = 3
"""Tensors that say what was chosen."""
GIVEN = len(Inputs._fields) - 2
"""Inputs that come as such; the last two say what is wanted of them."""


class Algorithm(Protocol):
    """What `sequential.py` and `parallel.py` have to say."""

    @property
    def forward(self) -> Callable[[Inputs], tuple[Tensor, ...]]:
        """The outputs, the choices (three tensors), and what the gradient needs beside them."""

    @property
    def backward(self) -> Callable[..., tuple[Any, ...]]:
        """From the inputs, the outputs' gradients, the choices and the kept to the gradients."""

    @property
    def written_out(self) -> Callable[[Inputs], tuple[Tensor, ...]]:
        """The outputs in ordinary operations."""

    @property
    def choices(self) -> Callable[..., Choices]:
        """From the scores and the choices of one model to what a trace is made of."""


@dataclass(frozen=True)
class Form:
    """What of a stage is no tensor."""

    algorithm: Algorithm
    self_context: bool
    opens: bool
    """Does one model get a leading dimension, as if it were several? On a GPU, for the kernels."""
    stacked: bool = False
    """Is there a leading dimension, the models? So it is under vmap; else there is one model."""

    def inputs(self, values: Sequence[Any], learned: bool = True) -> Inputs:
        slots, *rest = self.open(values)
        return Inputs(*(slots.contiguous(), *rest, self.self_context, learned))

    def open(self, values: Sequence[Any]) -> Sequence[Any]:
        if not self.opens:
            return values
        return [x.unsqueeze(0) if isinstance(x, Tensor) else x for x in values]

    def gradient(
        self,
        grads: Sequence[Tensor | None],
        values: Sequence[Any],
        kept: Sequence[Tensor],
        learned: bool = True,
    ) -> tuple[Any, ...]:
        """The gradients of the inputs, None to slots not learned; what was kept is open already."""
        inputs, (new, *others) = self.inputs(values, learned), self.open(grads)
        if new is None:
            new = torch.zeros_like(inputs.slots)
        elif self.opens or self.stacked:  # kernels count on it
            new = new.contiguous()
        return self.close(self.algorithm.backward(inputs, (new, *others), *kept))

    def close(self, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(x.squeeze(0) for x in values) if self.opens else tuple(values)


def stage(form: Form, *values: Any) -> tuple[Tensor, ...]:
    """(form, *inputs) -> the three outputs and the choices."""
    function = StageOfModels if torch._C._are_functorch_transforms_active() else Stage
    outputs: tuple[Tensor, ...] = function.apply(form, *values)
    return outputs[: OUTPUTS + CHOICES]


class Stage(torch.autograd.Function):
    """The stage where no transformation looks on: what is kept stays inside."""

    @staticmethod
    def forward(ctx: Any, form: Form, *values: Any) -> tuple[Tensor, ...]:
        outputs = form.algorithm.forward(form.inputs(values))
        _save(ctx, form, (*values, *outputs[OUTPUTS:]))
        told = form.close(outputs[: OUTPUTS + CHOICES])
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*told[OUTPUTS:])
        return told

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        form, saved = _saved(ctx)
        values, kept = saved[:GIVEN], saved[GIVEN:]
        if torch.is_grad_enabled():
            found = StageGradient.apply(form, *grads[:OUTPUTS], *values, *form.close(kept))
        else:
            learned = form.opens or ctx.needs_input_grad[1]  # kernels leave nothing out
            found = form.gradient(grads[:OUTPUTS], values, kept, learned)
        return None, *found, *[None] * (GIVEN - GRADIENTS)


class StageOfModels(torch.autograd.Function):
    """The stage for functorch, which wants to see all that is kept among the outputs."""

    @staticmethod
    def forward(form: Form, *values: Any) -> tuple[Tensor, ...]:
        return form.close(form.algorithm.forward(form.inputs(values)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[OUTPUTS:])
        _save(ctx, inputs[0], (*inputs[1:], *output[OUTPUTS:]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        form, saved = _saved(ctx)
        found: tuple[Tensor, ...] = StageGradient.apply(form, *grads[:OUTPUTS], *saved)
        return None, *found, *[None] * (GIVEN - GRADIENTS)

    @staticmethod
    def vmap(info: Any, in_dims: Any, form: Form, *values: Any) -> tuple[Any, Any]:
        return _over_models(StageOfModels, info, in_dims, form, values)


class StageGradient(torch.autograd.Function):
    """(form, gradients of the outputs, inputs, kept) -> gradients of the inputs."""

    @staticmethod
    def forward(form: Form, *values: Any) -> tuple[Tensor, ...]:
        kept = form.open(values[OUTPUTS + GIVEN :])
        return form.gradient(values[:OUTPUTS], values[OUTPUTS : OUTPUTS + GIVEN], kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _save(ctx, inputs[0], inputs[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        form, saved = _saved(ctx)
        weights = {i: g for i, g in enumerate(saved[:OUTPUTS]) if g is not None}
        values = tuple(saved[OUTPUTS : OUTPUTS + GRADIENTS])
        fixed = saved[OUTPUTS + GRADIENTS : OUTPUTS + GIVEN]

        def stage(*values: Tensor) -> dict[int, Tensor]:
            outputs = form.close(form.algorithm.written_out(form.inputs((*values, *fixed))))
            return {i: outputs[i] for i in weights}

        def gradient(weights: dict[int, Tensor], values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            first: tuple[Tensor, ...] = torch.func.vjp(stage, *values)[1](weights)
            return first

        to_weights, to_values = torch.func.vjp(gradient, weights, values)[1](grads)
        rest = len(saved) - OUTPUTS - GRADIENTS
        return None, *map(to_weights.get, range(OUTPUTS)), *to_values, *[None] * rest

    @staticmethod
    def vmap(info: Any, in_dims: Any, form: Form, *values: Any) -> tuple[Any, Any]:
        return _over_models(StageGradient, info, in_dims, form, values)


def _save(ctx: Any, form: Form, values: Sequence[Any]) -> None:
    """Tensors go where autograd and functorch look for them, numbers beside them."""
    ctx.form = form
    ctx.numbers = [None if isinstance(x, Tensor) else x for x in values]
    ctx.save_for_backward(*(x if isinstance(x, Tensor) else None for x in values))


def _saved(ctx: Any) -> tuple[Form, list[Any]]:
    pairs = zip(ctx.saved_tensors, ctx.numbers, strict=True)
    return ctx.form, [number if tensor is None else tensor for tensor, number in pairs]


def _over_models(
    function: type[torch.autograd.Function], info: Any, in_dims: Any, form: Form, values: Any
) -> tuple[Any, Any]:
    """vmap: what is mapped over becomes the dimension of the models, or joins it."""

    def stack(x: Any, dim: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        x = x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        return x.flatten(0, 1) if form.stacked else x

    stacked = [stack(x, dim) for x, dim in zip(values, in_dims[1:], strict=True)]
    outputs = function.apply(replace(form, opens=False, stacked=True), *stacked)
    if form.stacked:
        outputs = tuple(x.unflatten(0, (info.batch_size, -1)) for x in outputs)
    return outputs, (0,) * len(outputs)
