"""The stages of a training call, each as one function: where that applies, and the call.

It applies in the common case alone: linear queries, MLP rules, selection by the slots themselves,
all slots and all rules allowed, one floating type, and torch neither tracing nor casting. All else
takes the steps that the layers are written in, which give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.rules.fused import launch, parallel, sequential
from nps.rules.fused.function import Algorithm, Form, stage
from nps.rules.stage import Choices

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Algorithm", "Form", "applies", "launch", "parallel", "sequential", "stages"]


def applies(slots: Tensor, weights: Sequence[Tensor]) -> bool:
    """Is nothing about these tensors special?"""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(slots.device.type):
        return False
    if slots.dtype not in (torch.float32, torch.float64) or slots.numel() == 0:
        return False
    return all(w.dtype == slots.dtype for w in weights)


def stages(
    form: Form,
    slots: Float[Tensor, "*batch M D"],
    weights: Sequence[Tensor],
    uniform: Float[Tensor, "*batch K U"],
    *settings: Any,
) -> Iterator[tuple[Tensor, Callable[[], Choices]]]:
    """The slots after each stage, and what was chosen, for who wants to know.

    Weights, settings: as in `Inputs`, of one model.
    """
    batch, shape = slots.shape[:-2], slots.shape
    one = len(batch) == 1  # then nothing needs another shape, which autograd would record
    slots = slots if one else slots.reshape(-1, *shape[-2:])
    for noise in uniform.unbind(-2):
        noise = noise.reshape(len(slots), -1)
        slots, *found = stage(form, slots, *weights, noise, *settings)
        yield slots if one else slots.view(shape), partial(_choices, form, batch, found)


def _choices(form: Form, batch: tuple[int, ...], found: Sequence[Tensor]) -> Choices:
    return Choices(*(x.reshape(*batch, *x.shape[1:]) for x in form.algorithm.choices(*found)))
