"""Scenes as inputs of a trained model, what fires in it, and roll-outs: for `nps.load`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.errors import UserError
from nps.models.scoff import Prediction, Scoff
from nps.rollouts import Rollout
from nps.rules import RuleLayer, Trace
from nps.training import rng
from nps.training.task import how_many

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

    from nps.experiments.balls.task import BallsTask

SPLITS = ("train", "validation", "test", "transfer")


def first_frames(
    task: BallsTask, split: str, count: int | None, length: int
) -> tuple[UInt8[Tensor, "B T H W 3"], Float[Tensor, "B M D"]]:
    """The first frames of the first scenes of a split, and the noise that their slots start from,
    with a row for each slot: scenes of transfer have more."""
    left = how_many("n", count, len(task.scenes(split).radius), split)
    slots = task.config.transfer_slots if split == "transfer" else task.config.slots
    frames, noise = [], []
    for part in task.parts(split, slots, rollout=False):
        some = part.first(left)
        frames.append(task.draw_frames(some.scenes).images[:, :length])
        noise.append(some.noise)
        left -= len(some.noise)
        if not left:
            break
    return torch.cat(frames), torch.cat(noise)


def traced(
    model: Scoff, frames: UInt8[Tensor, "B S H W 3"], noise: Float[Tensor, "B M D"]
) -> Trace:
    """What fires at each of the frames, (B, S, K, M)."""
    if not isinstance(model.interaction, RuleLayer):
        between = "nothing" if model.interaction is None else type(model.interaction).__name__
        raise UserError(f"trace: this model has no rules ({between} between its slots)")
    predicted: Prediction = model(frames, slots=noise.shape[1], noise=noise, return_trace=True)
    assert predicted.trace is not None
    return predicted.trace


def first_videos(
    task: BallsTask, split: str, count: int | None, steps: int | None
) -> tuple[UInt8[Tensor, "E S+T H W 3"], Float[Tensor, "E T 0"]]:
    """The frames that are seen of the first scenes, and those after them. Nothing acts in a video:
    actions are empty, and only say how many frames to predict."""
    if split not in ("validation", "test"):
        raise UserError(f"split: got {split!r}, expected validation or test")
    seen = task.config.seen_frames
    most = task.scenes(split).position.shape[1] - seen
    steps = how_many("steps", steps, most, f"a scene of {split}", usual=most)
    frames, _ = first_frames(task, split, count, seen + steps)
    return frames, torch.zeros(len(frames), steps, 0, device=task.device)


def rolled_out(
    task: BallsTask,
    model: Scoff,
    images: UInt8[Tensor, "E F H W 3"],
    actions: Float[Tensor, "E T 0"],
) -> Rollout:
    """Predict T frames after those that are seen, without further input.

    Frames after `seen_frames` are not shown to the model that predicts. If there are at least T,
    they are read by the same slots, to compare with: `Rollout.true`.
    """
    steps, seen = actions.shape[1], min(images.shape[1], task.config.seen_frames)
    draw = rng.generator("cpu", task.config.data_seed, "rollout", "slots")
    noise = torch.randn(len(images), task.config.slots, task.config.slot_dim, generator=draw)
    start = {"noise": noise.to(images.device), "slots": task.config.slots}
    last = seen - 1  # prediction t is of frame t + 1
    predicted: Prediction = model(images[:, :seen], steps=last + steps, return_trace=True, **start)
    true = None
    if images.shape[1] >= seen + steps:
        true = model(images[:, : seen + steps], **start).read[:, seen:]
    fired = predicted.trace
    trace = None if fired is None else Trace(*(x[:, last:] for x in fired))
    return Rollout(predicted.slots[:, last:], true, trace)
