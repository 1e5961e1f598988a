"""What fires on an image and an operation, and sequences of operations on the image slot.

`compose.py` measures such sequences with rules that are chosen by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.errors import UserError
from nps.models.digits import DigitTransformation, OperandNPS
from nps.rollouts import Rollout
from nps.rules import Trace

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def traced(
    model: DigitTransformation,
    images: Float[Tensor, "B 64 64"] | Float[Tensor, "B D"],
    operation: Int[Tensor, "B"],
) -> tuple[Float[Tensor, "B D"], Trace]:
    """The image slot after an operation, and what fired; from images or from their slots."""
    if not isinstance(model.layer, OperandNPS):
        raise UserError("trace: this model has no rules (model mlp)")
    slot = images if images.dim() == 2 else model.encode(images)
    stepped = model.step(slot, operation, return_trace=True)
    assert isinstance(stepped, tuple)  # as asked for
    return stepped


def rolled_out(
    model: DigitTransformation,
    images: Float[Tensor, "E 64 64"] | Float[Tensor, "E T+1 64 64"],
    operations: Int[Tensor, "E T"],
) -> Rollout:
    """Operation after operation on the slot of the first images; M is 1, the image slot."""
    whole = images.dim() == 4
    slot, slots, traces = model.encode(images[:, 0] if whole else images), [], []
    for operation in operations.unbind(1):
        if isinstance(model.layer, OperandNPS):
            slot, trace = traced(model, slot, operation)
            traces.append(trace)
        else:
            stepped = model.step(slot, operation)
            assert isinstance(stepped, Tensor)
            slot = stepped
        slots.append(slot.unsqueeze(-2))
    true = None
    if whole:
        later = images[:, 1:]
        true = model.encode(later.flatten(0, 1)).unflatten(0, later.shape[:2]).unsqueeze(-2)
    return Rollout(torch.stack(slots, 1), true, Trace.of_stages(traces, 1) if traces else None)
