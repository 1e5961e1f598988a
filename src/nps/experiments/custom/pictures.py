"""Pictures of a world model of the user's own episodes: roll-outs, and maps of the slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nps.experiments.custom.readout import LinearReadout, fit_readout
from nps.experiments.custom.steps import Observations, PredictedSteps, encode, padded_actions
from nps.experiments.world_models.pictures import image_pool
from nps.inspect import figures
from nps.inspect.grids import to_bytes
from nps.inspect.report import Figure
from nps.inspect.rollouts import rgb
from nps.inspect.strips import Strip, slot_maps, strips
from nps.models.transitions import RuleTransition
from nps.models.world_model import FARTHEST, WorldModel
from nps.rules import Trace

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

SHOWN, SHOWN_STEPS = 3, 10
"""Number of roll-outs and steps that are drawn."""
SHOWN_SLOTS = 8
SHOWN_FIRINGS = 4
"""Most fired rules that are listed below a step."""
SHOWN_NUMBERS = 3
"""Most components of a continuous action that are listed below a step."""
FITTED_ON = 1_000
"""Number of training images that the read-out is fitted on."""


def rollout_figure(task: Any, model: WorldModel, steps: PredictedSteps) -> list[Figure]:
    """True and predicted images of the first of the longest roll-outs; empty without matplotlib."""
    if not figures.available():
        return []
    lengths = task.rollouts.lengths
    which = lengths.sort(descending=True, stable=True).indices[:SHOWN].sort().values
    readout = fitted(task, model)
    drawn = [strip_of(task, model, steps, readout, e) for e in which.tolist()]
    right = np.concatenate([strip.right for strip in drawn])
    variance = 100 * max(0.0, explained(task, steps, readout))
    caption = (
        f"The first of the longest held-out roll-outs, {len(drawn)} of {len(lengths)}. "
        "Above: the true images; only the first is given to the model. Middle: the predictions. "
        f"The model has no decoder, so the nearest of the {steps.observations.distinct} distinct "
        "held-out observations is drawn, with a red frame if it is not the true one "
        f"({(~right).sum()} of {len(right)}). Below it the action (a), and each rule (r) with the "
        "slot it changed ← the slot it took as context. Below: a linear read-out of the predicted "
        f"slots, fitted afterwards on training images; it explains {variance:.0f} % of the "
        "variance of held-out images from their own slots."
    )
    if task.config.frames > 1:
        caption += " Of stacked frames only the newest is drawn, so wrong may look right."
    return [Figure("rollouts", strips(drawn), caption)]


def strip_of(
    task: Any, model: WorldModel, steps: PredictedSteps, readout: LinearReadout, e: int
) -> Strip:
    """The images and notes of one roll-out."""
    data, seen = task.rollouts, steps.observations
    length = min(int(data.lengths[e]) - 1, SHOWN_STEPS)
    number, nearest = seen.number[e, : length + 1], steps.nearest[e, :length]
    true, predicted = (observed(task, seen, some) for some in (number, nearest))
    slots = torch.cat([steps.slots[number[:1]], steps.rolled[e, :length]])
    decoded = readout(slots).unflatten(-1, true.shape[1:])
    return Strip(
        f"roll-out {e}",
        true=to_bytes(rgb(true)),
        predicted=to_bytes(rgb(predicted)),
        decoded=to_bytes(rgb(decoded)),
        right=(nearest == number[1:]).cpu().numpy(),
        notes=notes(model, slots[0], padded_actions(data)[e, :length]),
    )


def slots_figure(task: Any, model: WorldModel, steps: PredictedSteps) -> list[Figure]:
    """What each slot looks at: the map that its encoder reads; empty without matplotlib."""
    encoder: Any = model.encoder
    if not figures.available() or not hasattr(encoder, "maps"):
        return []
    seen = steps.observations
    some = spaced(seen.distinct, SHOWN)
    images = task.rollouts.images(*(x[some] for x in seen.first))
    with torch.no_grad():
        maps: Tensor = encoder.maps(images)
    caption = (
        "What each slot looks at: the map of the encoder from which the slot is computed, for "
        f"{len(images)} held-out observations, from black (least) to white (most)."
    )
    if maps.shape[1] > SHOWN_SLOTS:
        caption += f" The first {SHOWN_SLOTS} of {maps.shape[1]} slots."
    shown = to_bytes(rgb(newest(task, images)))
    png = slot_maps(shown, maps[:, :SHOWN_SLOTS].float().cpu().numpy())
    return [Figure("slots", png, caption)]


@torch.no_grad()
def fitted(task: Any, model: WorldModel) -> LinearReadout:
    """The linear read-out, fitted on training images."""
    images = image_pool(task.sets["train"], FITTED_ON)
    return fit_readout(encode(model, images), _levels(newest(task, images)).flatten(1))


def explained(task: Any, steps: PredictedSteps, readout: LinearReadout) -> float:
    """Share of the variance of held-out images that the read-out of their own slots explains."""
    some = spaced(steps.observations.distinct, FITTED_ON)
    images = observed(task, steps.observations, some)
    return readout.explained(steps.slots[some], _levels(images).flatten(1))


def observed(task: Any, seen: Observations, number: Int[Tensor, "n"]) -> Shaped[Tensor, "n H W c"]:
    """Some of the distinct observations as images."""
    return newest(task, task.rollouts.images(*(x[number] for x in seen.first)))


def spaced(count: int, most: int) -> Int[Tensor, "n"]:
    """At most `most` of the numbers below `count`, evenly spaced."""
    some = min(most, count)
    return torch.arange(some) * count // some


def newest(task: Any, images: Shaped[Tensor, "n H W C"]) -> Shaped[Tensor, "n H W c"]:
    """The newest of stacked frames, which comes first."""
    return images[..., : images.shape[-1] // task.config.frames]


@torch.no_grad()
def notes(
    model: WorldModel, slots: Float[Tensor, "M D"], actions: Shaped[Tensor, "T ..."]
) -> list[str]:
    """For each step of a roll-out its action, and on the next lines the rules that fired."""
    state, lines = slots[None], []
    for action in actions:
        fired: list[str] = []
        if isinstance(model.transition, RuleTransition):
            state, trace = model.traced(state, action[None])
            state = state.clamp(-FARTHEST, FARTHEST)
            fired = firings(trace)
        more = [f"+{len(fired) - SHOWN_FIRINGS} more"] if len(fired) > SHOWN_FIRINGS else []
        lines.append("\n".join([f"a {_action(action)}", *fired[:SHOWN_FIRINGS], *more]))
    return lines


def firings(trace: Trace) -> list[str]:
    """`r1: 0←3` for each rule that fired, stage by stage: rule 1 on slot 0 with context 3."""
    rule, context = trace.rule[0], trace.context[0]
    return [
        f"r{int(rule[k, m])}: {m}←{int(context[k, m])}" for k, m in (rule >= 0).nonzero().tolist()
    ]


def _action(action: Int[Tensor, ""] | Float[Tensor, "A"]) -> str:
    if not action.dim():
        return str(int(action))
    numbers = [f"{value:.1f}" for value in action[:SHOWN_NUMBERS].tolist()]
    return " ".join([*numbers, *(["…"] if len(action) > SHOWN_NUMBERS else [])])


def _levels(images: Shaped[Tensor, "n H W C"]) -> Float[Tensor, "n H W C"]:
    """From 0 to 1."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()
