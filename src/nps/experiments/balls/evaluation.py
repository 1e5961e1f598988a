"""Test a model of bouncing balls: the next frame of scenes that it sees, then a roll-out.

Predictions count from the second on: in one frame, as R-NEM has it too, nobody can see how fast a
ball is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nps.experiments.balls.collisions import (
    PREFIX,
    Reading,
    Statements,
    attended,
    best_threshold,
    chosen_contexts,
    collision_rule,
    count_firing,
    count_loud,
    count_pairs,
    of_balls,
    rates,
)
from nps.experiments.balls.config import Config
from nps.experiments.balls.floors import NEAREST, RANDOM, all_floors
from nps.experiments.balls.measures import (
    Measured,
    centres,
    channels_first,
    distances,
    mean_where,
    near_collisions,
    segmentation,
    slots_of_balls,
    squared_error,
    tables,
    visible,
)
from nps.interactions import Attention
from nps.models.scoff import Prediction, Scoff
from nps.rules import Trace
from nps.worlds.balls import Scenes

if TYPE_CHECKING:
    from jaxtyping import Float, Int64, UInt8


class Part(NamedTuple):
    """Some held-out scenes, and how they are shown."""

    scenes: Scenes
    noise: Float[Tensor, "B M D"]
    """Where slots without a place start: a function of the seed of the data, so that a test can be
    repeated; in any case, one row for each slot."""
    transfer: bool
    rollout: bool

    def first(self, count: int) -> Part:
        return self._replace(scenes=self.scenes.at(slice(count)), noise=self.noise[:count])


Shown = tuple[Part, Tensor, Tensor]
"""Scenes, their images and the labels of all pixels."""


def predict(
    config: Config, model: Scoff, part: Part, images: UInt8[Tensor, "B T H W 3"]
) -> Prediction:
    """Each of the frames after the first; the last ones, if asked for, without input."""
    seen = config.seen_frames
    predicted: Prediction = model(
        images[:, :seen],
        steps=images.shape[1] - 1 if part.rollout else seen,
        slots=part.noise.shape[1],
        noise=part.noise,
        return_trace=True,
    )
    return predicted


def measure(
    config: Config,
    model: Scoff,
    part: Part,
    images: UInt8[Tensor, "B T H W 3"],
    labels: UInt8[Tensor, "B T H W"],
    reading: Reading | None = None,
    near: float | None = None,
) -> Measured:
    """All metrics of some scenes; without a reading, not those that depend on one.

    `near` is the reading of the floor that names the nearest ball (`floors.closeness`).
    """
    seen, scenes = config.seen_frames, part.scenes
    predicted = predict(config, model, part, images)
    now, last = slice(1, seen), slice(2, 1 + seen)  # of predictions, of frames
    error = squared_error(predicted.images, images[:, 1 : 1 + predicted.images.shape[1]])
    error = error.flatten(2).mean(-1)
    segments, slots = predicted.masks.argmax(2), part.noise.shape[1]
    objects, components = scenes.present.shape[1] + 1, predicted.masks.shape[2]
    table, slot_of_ball = matched(config, part, predicted, labels)
    copied = squared_error(channels_first(images[:, now]), images[:, last])
    measured = {"mse": error[:, now].mean(1), "copy_mse": copied.flatten(1).mean(1)}
    measured |= segmentation(table)
    far = distances(centres(segments, slots), scenes.position[:, 1:], slot_of_ball)
    moved = (scenes.position[:, 1:] - scenes.position[:, :-1]).norm(dim=-1)
    balls = visible(labels[:, 1:], scenes.present.shape[1])  # not those behind a curtain
    bumped = near_collisions(scenes.collided)[:, 1:] & balls
    for name, values in {"": far, "copy_": moved}.items():
        measured[f"{name}position"] = mean_where(values[:, now], balls[:, now])
        measured[f"{name}position_collision"] = mean_where(values[:, now], bumped[:, now])
    measured |= collisions(config, model, predicted, scenes, slot_of_ball, reading)
    if part.rollout:
        measured["transfer"] = torch.full_like(error[:, 0], float(part.transfer))
        late = segmentation(tables(labels[:, 1 + seen :], segments[:, seen:], objects, components))
        measured["rollout_mse"] = error[:, seen:].mean(1)
        measured["rollout_fg_ari"] = late["fg_ari"]
        measured["rollout_video_fg_miou"] = late["video_fg_miou"]
        measured["rollout_position"] = mean_where(far[:, seen:], balls[:, seen:])
        measured |= all_floors(scenes, images, labels, seen, near)
    return measured


def matched(
    config: Config, part: Part, predicted: Prediction, labels: UInt8[Tensor, "B T H W"]
) -> tuple[Int64[Tensor, "B T objects components"], Int64[Tensor, "B M"]]:
    """Pixels of objects in components, of the predictions that count; the slot of each ball."""
    seen, objects = config.seen_frames, part.scenes.present.shape[1] + 1
    masks = predicted.masks[:, 1:seen]
    table = tables(labels[:, 2 : 1 + seen], masks.argmax(2), objects, masks.shape[2])
    return table, slots_of_balls(table, part.noise.shape[1])


def collisions(
    config: Config,
    model: Scoff,
    predicted: Prediction,
    scenes: Scenes,
    slot_of_ball: Int64[Tensor, "B M"],
    reading: Reading | None,
) -> Measured:
    """What rules, or attention, say about who bumped whom in the frames with input."""
    statements = state(config, model, predicted, scenes, slot_of_ball)
    if statements is None:
        return {}
    told, strength, collided = statements
    counted = count_pairs(told, collided, scenes.present)
    if reading is not None and reading.loud is not None:
        loud = told & (strength > reading.loud).unsqueeze(-1)
        counted |= count_loud(loud, collided, scenes.present)
    if predicted.trace is not None:
        trace = Trace(*(x[:, 1 : config.seen_frames] for x in predicted.trace))
        counted |= count_firing(trace, config.rules, slot_of_ball, collided, scenes.present)
    return counted


def state(
    config: Config,
    model: Scoff,
    predicted: Prediction,
    scenes: Scenes,
    slot_of_ball: Int64[Tensor, "B M"],
) -> Statements | None:
    """Which ball each ball was changed by, and how much; None if nothing says so."""
    seen, layer = slice(1, config.seen_frames), model.interaction
    if predicted.trace is not None:
        pointed = chosen_contexts(Trace(*(x[:, seen] for x in predicted.trace)))
    elif isinstance(layer, Attention):
        present = None if predicted.present is None else predicted.present[:, seen]
        pointed = attended(
            layer.weights(model.in_units(predicted.before[:, seen]), slot_mask=present)
        )
    else:
        return None
    change = model.change(predicted)[:, seen]
    at = slot_of_ball.clamp(min=0).unsqueeze(1).expand(-1, change.shape[1], -1)
    collided = scenes.collided[:, 2 : 1 + config.seen_frames]
    return Statements(of_balls(pointed, slot_of_ball), change.gather(2, at), collided)


def choose_reading(config: Config, model: Scoff, parts: Iterable[Shown]) -> Reading | None:
    """How to read traces, or attention, from the scenes of `parts`; None if nothing tells."""
    told, fired = [], []
    for part, images, labels in parts:
        predicted = predict(config, model, part, images)
        _, slot_of_ball = matched(config, part, predicted, labels)
        statements = state(config, model, predicted, part.scenes, slot_of_ball)
        if statements is None:
            return None
        told.append(statements.flat())
        fired.append(collisions(config, model, predicted, part.scenes, slot_of_ball, None))
    strength, true, hits = (torch.cat(x) for x in zip(*told, strict=True))
    counted = {name: torch.cat([x[name] for x in fired]) for name in fired[0]}
    return Reading(best_threshold(strength, true, int(hits.sum())), collision_rule(counted))


def summary(measured: Measured, reading: Reading | None = None) -> dict[str, Any]:
    """Means over scenes, without those where something is not defined (no collision, no ball),
    and the rates of what was counted: by the model, and by the floors of who bumped whom."""
    means = {n: x.double().nanmean().item() for n, x in measured.items() if PREFIX not in n}
    found: dict[str, Any] = {name: x for name, x in means.items() if not math.isnan(x)}
    found |= rates(measured, None if reading is None else reading.rule)
    near, drawn = (rates(of_floor(measured, floor)) for floor in (NEAREST, RANDOM))
    found |= {NEAREST + name: rate for name, rate in near.items()}
    chance = "_chance"
    return found | {
        RANDOM + name.removesuffix(chance): rate
        for name, rate in drawn.items()
        if name.endswith(chance)
    }


def of_floor(measured: Measured, floor: str) -> Measured:
    """Its counts, by the names that those of a model have."""
    return {n.removeprefix(floor): x for n, x in measured.items() if n.startswith(floor + PREFIX)}
