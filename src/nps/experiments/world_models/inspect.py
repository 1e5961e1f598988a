"""What `nps inspect` shows of a world model: what it does for each action, its ranking beside the
baselines, and pictures of its roll-outs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from nps.experiments.world_models.episodes import Episodes, steps
from nps.experiments.world_models.pictures import first_images, image_pool
from nps.inspect import figures
from nps.inspect.report import Figure, Part, Table
from nps.inspect.rollouts import gallery, predict_images
from nps.models.transitions import RuleTransition
from nps.models.world_model import WorldModel
from nps.rules import Trace

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped

MOST_TRANSITIONS = 4_000
"""Test transitions that the tables count."""
POOL = 20_000
"""Training images from which the picture of a prediction is chosen."""
SHOWN_EPISODES = 4


def inspect_world_model(
    task: Any, model: WorldModel, action_names: Sequence[str] | None
) -> list[Part]:
    """Slots, rules and contexts by action; the ranking and its baselines; roll-outs."""
    return [
        *action_tables(task, model, action_names),
        ranking_table(task.test(model), task.horizons),
        *rollout_figure(task, model),
    ]


@torch.no_grad()
def action_tables(task: Any, model: WorldModel, names: Sequence[str] | None) -> list[Table]:
    """A row for each discrete action, by name; a single row if actions are continuous."""
    slots, action = first_transitions(task, task.sets["test"], model)
    if isinstance(model.transition, RuleTransition):
        counted = what_fired(model.traced(slots, action)[1])
    else:
        change = (model.predict(slots, action) - slots).square().sum(-1)
        most = one_hot(change.argmax(-1), change.shape[-1])
        counted = {"how often the slot changes most": columns("slot", most)}
    every = torch.ones(len(action), dtype=torch.bool, device=action.device)
    groups = {"any": every}
    if names is not None:
        groups = {name: action == number for number, name in enumerate(names)}
    return [
        Table(
            ["Action", "steps", *marks],
            [[name, str(int(some.sum())), *shares(marks, some)] for name, some in groups.items()],
            f"Test transitions by action, in per cent: {says}.",
        )
        for says, marks in counted.items()
    ]


Marks = dict[str, "Float[Tensor, 'n']"]
"""Column name -> 1 or 0 (or a share) for each transition."""


def columns(name: str, marks: Shaped[Tensor, "n M"]) -> Marks:
    return {f"{name} {m}": column.float() for m, column in enumerate(marks.unbind(1))}


def shares(marks: Marks, some: Bool[Tensor, "n"]) -> list[str]:
    """The mean of each column over some transitions, in per cent; a dash if there are none."""
    if not some.any():
        return ["–"] * len(marks)
    return [f"{100 * float(mark[some].mean()):.0f}" for mark in marks.values()]


def what_fired(trace: Trace) -> dict[str, Marks]:
    """For each transition: which slots changed, and the share of each rule and context."""
    stages, slots = trace.rule.shape[1:]
    rules = trace.rule_scores.shape[-1]
    count = trace.fired.flatten(1).sum(1, keepdim=True).clamp(min=1)
    by_rule = one_hot(trace.rule.flatten(1) + 1, rules + 1).sum(1)[:, 1:] / count
    by_context = one_hot(trace.context.flatten(1) + 1, slots + 1).sum(1)[:, 1:] / count
    often = f" ({stages} stages)" if stages > 1 else ""
    counted = {f"how often a rule changes the slot{often}": columns("slot", trace.fired.any(1))}
    if rules > 1:
        counted["which rule it is"] = columns("rule", by_rule)
    return counted | {"which slot it takes as its context": columns("context", by_context)}


def first_transitions(
    task: Any, data: Episodes, model: WorldModel
) -> tuple[Float[Tensor, "n M D"], Shaped[Tensor, "n ..."]]:
    """The slots before each transition of the first episodes, and the actions taken there."""
    count, length = len(data.lengths), steps(data)
    episodes = max(1, min(count, MOST_TRANSITIONS // length))
    slots = task.encoded(model, data, range(length), episodes)
    return slots.flatten(0, 1), data.action[:episodes].flatten(0, 1)


ROWS = {
    "H@1": "h1",
    "MRR": "mrr",
    "H@1, ties are misses": "h1_strict",
    "H@1 among distinct observations": "h1_distinct",
    "H@1 among the states of its episode, ties are misses": "h1_episode_strict",
    "Nothing moves: H@1": "identity_h1",
    "Nothing moves: H@1, ties are misses": "identity_h1_strict",
    "Copy the input: H@1": "copy_h1",
    "Copy the input: H@1, ties are misses": "copy_h1_strict",
}


def ranking_table(
    metrics: dict[str, Any], horizons: Sequence[int], ranked: str = "Test set"
) -> Table:
    """The ranking and its baselines, a column for each number of steps."""
    known = {name: key for name, key in ROWS.items() if f"{key}_{horizons[0]}" in metrics}
    rows = [
        [name, *(f"{100 * metrics[f'{key}_{step}']:.1f}" for step in horizons)]
        for name, key in known.items()
    ]
    caption = (
        f"{ranked}, in per cent, by number of steps; ties are hits, as in C-SWM, unless stated "
        "otherwise. Nothing moves: a transition that leaves these slots as they are."
    )
    if count := metrics.get("rollouts"):
        caption += f" Ranks are among {count} roll-outs: by chance H@1 is {100 / count:.2g}."
    if "copy_h1" in known.values():
        caption += " Copy the input: the first observation itself as the prediction, in pixels."
    return Table(["Steps", *map(str, horizons)], rows, caption)


def rollout_figure(task: Any, model: WorldModel) -> list[Part]:
    """Roll-outs of the first test episodes from their first image; empty without matplotlib."""
    if not figures.available():
        return []
    test = task.sets["test"]
    shown = min(SHOWN_EPISODES, len(test.lengths))
    images, pool = first_images(test, shown, steps(test)), image_pool(task.sets["train"], POOL)
    found = predict_images(model, images, test.action[:shown], pool)
    caption = (
        f"The true images of the first {shown} test episodes, and below them the predictions from "
        "the first image alone. A prediction is drawn as the image with the nearest encoding, "
        f"among {len(pool)} training images and the true images of these episodes; wrong ones, "
        f"{int((~found.right).sum())} of {found.right.numel()}, have a red frame"
    )
    if images.shape[-1] > 3:
        caption += "; only the newest frame of an observation is drawn, so wrong may look right"
    names = [f"episode {e}" for e in range(shown)]
    return [Figure("rollouts", gallery(found, names), caption)]
