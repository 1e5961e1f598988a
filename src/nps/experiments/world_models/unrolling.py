"""An episode predicted step by step, each from the prediction before, under some edits.

The same as `WorldModel.rollout`, one call of the transition a step, so that a slot can be changed
before any of them and the rule layer be watched. Steps before the first edit are not repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor

from nps.inspect.edits import Edits
from nps.inspect.intervene import intervened
from nps.inspect.playback import Record
from nps.inspect.recording import joined, recorded, some_steps
from nps.inspect.workbench import Workbench, placed
from nps.models.world_model import FARTHEST, WorldModel

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped


class Unrolled(NamedTuple):
    """T steps of one episode."""

    slots: Float[Tensor, "T+1 M D"]
    """The first are given; where slots are placed by hand, after that."""
    record: Record | None


@torch.no_grad()
def unroll(
    bench: Workbench,
    given: Float[Tensor, "M D"],
    actions: Shaped[Tensor, "T ..."],
    edits: Edits = Edits(),  # noqa: B008, it is frozen
    unedited: Unrolled | None = None,
) -> Unrolled:
    """Predict T steps.

    Args:
        bench: with a `WorldModel`.
        given: the slots of the first frame.
        actions: of the episode, with those that are changed by hand.
        edits: what is changed.
        unedited: the same episode without edits; its steps before the first edit are taken over.
    """
    first = 0 if unedited is None else edits.first_step()
    slots = given if unedited is None else unedited.slots[first]
    done = [] if unedited is None else [*unedited.slots[:first]]
    directions = {edit.feature: bench.layer_direction(edit.feature) for edit in edits.added}
    with (
        intervened(bench.layer, edits, directions, first=first),
        recorded(bench.layer) as recorder,
    ):
        for step in range(first, len(actions)):
            slots = with_placed(bench, slots, edits, step)
            done.append(slots)
            slots = predict(bench, slots, actions[step])
    record = recorder.record()
    if first and record is not None and unedited is not None and unedited.record is not None:
        record = joined(some_steps(unedited.record, 0, first), record)
    return Unrolled(torch.stack([*done, slots]), record)


def predict(
    bench: Workbench, slots: Float[Tensor, "M D"], action: Shaped[Tensor, "..."]
) -> Float[Tensor, "M D"]:
    """The slots after one action, as a roll-out computes them."""
    model = cast("WorldModel", bench.model)
    return model.predict(slots[None], action[None])[0].clamp(-FARTHEST, FARTHEST)


def with_placed(
    bench: Workbench, slots: Float[Tensor, "M D"], edits: Edits, step: int
) -> Float[Tensor, "M D"]:
    """The slots with what is set by hand before a step; the same tensor if nothing is."""
    if not any(edit.step == step for edit in edits.placed):
        return slots
    new = placed(bench, slots.cpu().numpy(), edits, step)
    return torch.from_numpy(new).to(slots)
