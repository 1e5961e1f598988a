"""What fires in a world model on some transitions, and roll-outs with what fired at each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.errors import UserError
from nps.experiments.world_models.episodes import Episodes, transitions
from nps.experiments.world_models.pictures import first_images
from nps.inspect.rollouts import encoded
from nps.models.transitions import RuleTransition
from nps.models.world_model import WorldModel
from nps.rollouts import Rollout
from nps.rules import Trace
from nps.training.task import how_many

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped


def first_transitions(data: Episodes, count: int | None, split: str) -> tuple[Tensor, Tensor]:
    """The observations and actions of the first transitions of a set."""
    moments = transitions(data)
    count = how_many("n", count, len(moments.time), split)
    first = moments.episode[:count], moments.time[:count]
    return data.images(*first), data.actions(*first)


def traced(
    model: WorldModel,
    images: Shaped[Tensor, "B H W C"] | Float[Tensor, "B M D"],
    action: Shaped[Tensor, "B ..."],
) -> Trace:
    """What fires for an action, from images or from their slots."""
    if not isinstance(model.transition, RuleTransition):
        raise UserError(f"trace: this model has no rules ({type(model.transition).__name__})")
    slots = images if images.dim() == 3 else encoded(model, images)
    return model.traced(slots, action)[1]


def first_episodes(
    data: Episodes, count: int | None, steps: int | None, split: str
) -> tuple[Tensor, Tensor]:
    """The observations and actions of the first episodes of a set, which have the same length."""
    shortest, longest = (int(x) for x in data.lengths.aminmax())
    if shortest != longest:
        raise UserError(f"split: episodes of {split} differ in length, expected validation or test")
    most = longest - 1
    count = how_many("n", count, len(data.lengths), split)
    steps = how_many("steps", steps, most, f"an episode of {split}", usual=most)
    return first_images(data, count, steps), data.action[:count, :steps]


def rolled_out(
    model: WorldModel,
    images: Shaped[Tensor, "E H W C"] | Shaped[Tensor, "E T+1 H W C"],
    actions: Shaped[Tensor, "E T ..."],
) -> Rollout:
    """As `WorldModel.rollout`, with what fired at each step and the slots of the true images."""
    whole = images.dim() == 5
    slots = encoded(model, images[:, 0] if whole else images)
    predicted = model.rollout(slots, actions)
    trace = None
    if isinstance(model.transition, RuleTransition):
        # Each step again, from the slots that the roll-out had before it.
        before = torch.cat([slots.unsqueeze(1), predicted[:, :-1]], 1)
        trace = model.traced(before, actions)[1]
    true = None
    if whole:
        later = images[:, 1:]
        true = encoded(model, later.flatten(0, 1)).unflatten(0, later.shape[:2])
    return Rollout(predicted, true, trace)
