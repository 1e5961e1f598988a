"""Test a model of falling towers: how far shapes are from where they were predicted.

RPIN's metric is 1,000 times the mean squared distance of centres, in sides of the picture: over
frames 1 to 15, as in training, and over 16 to 30. A model draws a latent for each prediction; RPIN
reports the best of 10 or 100 draws for each episode. That can be bought by drawing more often, so
the mean over draws stands beside it, and the one guess of the likeliest latent, 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.experiments.stacks import rule_use
from nps.experiments.stacks.rule_use import Measured
from nps.models.rpin import LATENT, RPIN
from nps.rules import Trace
from nps.worlds.stacks import Episodes, boxes, centres

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

FEW = 10
"""Draws of which the best is reported, besides the best of all."""
TOGETHER = 20
"""Draws that are predicted at once."""


class Part(NamedTuple):
    """Some held-out episodes."""

    episodes: Episodes
    images: UInt8[Tensor, "B H W 3"]
    """The first frames."""
    latents: Float[Tensor, "B S 8"]
    """S draws for each episode."""
    four: bool = False
    """Whether towers have four shapes."""


def errors(
    predicted: Float[Tensor, "*batch T M 2"], true: Float[Tensor, "*batch T M 2"]
) -> Float[Tensor, "*batch T"]:
    """1,000 times the squared distance, as a mean over shapes."""
    return 1000.0 * (predicted - true).square().sum(-1).mean(-1)


def measure(
    model: RPIN, part: Part, near: int, frames: int, mean_way: Float[Tensor, "T 3 2"] | None
) -> Measured:
    """Errors of every draw and of the floors, and what fires, for each episode.

    Args:
        model: the model.
        part: what to predict.
        near: frames that training predicts; those after them count apart.
        frames: frames to predict.
        mean_way: the mean way of a training episode's shapes, by level; None for other towers.
    """
    episodes = part.episodes
    places = centres(episodes.position[:, : frames + 1])
    first, true = places[:, :1], places[:, 1:]
    slots = model.encode(model.backbone(part.images), boxes(episodes.position[:, 0]))
    found: list[Tensor] = []
    trace = None
    for draws in part.latents.split(TOGETHER, 1):
        count = draws.shape[1]
        start, latent = slots.repeat_interleave(count, 0), draws.flatten(0, 1)
        predicted = model.unroll(start, latent, frames, return_trace=not found)
        middle = predicted.boxes[..., :2].unflatten(0, (len(slots), count))
        found.append(errors(middle, true.unsqueeze(1)))
        if predicted.trace is not None:
            trace = Trace(*(x[::count] for x in predicted.trace))  # of the first draw
    likeliest = model.unroll(slots, torch.zeros_like(part.latents[:, 0]), frames).boxes[..., :2]
    error = torch.cat(found, 1)
    measured = {"near": error[..., :near].mean(-1), "far": error[..., near:].mean(-1)}
    guesses = {"centre": errors(likeliest, true), "still": errors(first, true)}
    if mean_way is not None:
        guesses["average"] = errors(first + mean_way, true)
    for name, values in guesses.items():
        measured[f"{name}_near"] = values[:, :near].mean(-1)
        measured[f"{name}_far"] = values[:, near:].mean(-1)
    if trace is not None:
        measured |= rule_use.measure(trace, episodes, frames)
    return measured


def summary(measured: Measured) -> dict[str, float]:
    """Means over episodes: of all draws, and of the best ones of each episode."""
    near, far = measured.pop("near").double(), measured.pop("far").double()
    metrics = {"p1": near.mean().item(), "p2": far.mean().item()}
    for name, count in {f"best{FEW}": FEW, "best": near.shape[1]}.items():
        best = (near[:, :count] + far[:, :count]).argmin(1, keepdim=True)
        metrics[f"{name}_p1"] = near.gather(1, best).mean().item()
        metrics[f"{name}_p2"] = far.gather(1, best).mean().item()
    sums = {name: x.double().sum().item() for name, x in measured.items() if "count_" in name}
    metrics |= rule_use.summary(sums)
    means = {name: x.double().mean().item() for name, x in measured.items() if name not in sums}
    named = {"_near": "_p1", "_far": "_p2"}
    for name, value in means.items():
        end = next((end for end in named if name.endswith(end)), None)
        metrics[name if end is None else name.removesuffix(end) + named[end]] = value
    return metrics


def draw_latents(count: int, samples: int, draw: torch.Generator) -> Float[Tensor, "count S 8"]:
    return torch.randn(count, samples, LATENT, generator=draw)
