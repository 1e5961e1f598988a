"""The tracker from its settings, and the loss of a clip: each frame as seen, and as expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

from torch import Tensor

from nps.experiments.sprites.config import Config
from nps.experiments.sprites.watching import as_floats
from nps.models.scoff import Kind, make_interaction
from nps.models.tracker import Tracker
from nps.perception.births import BirthReader
from nps.perception.frames import Drawing, FrameEncoder
from nps.perception.patches import PatchDecoder

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

CHANNELS = 3
"""Of an image."""
AREA_FROM, AREA_TO = 0.1, 0.4
"""Parts of training over which the penalty on the slots' area grows to its weight."""
AREA_OF_NONE = 1e-3
"""Added to a slot's share of the pixels, so that its square root has a slope at zero."""


def make_tracker(config: Config) -> Tracker:
    assert config.interaction in get_args(Kind)  # as the config has checked
    slot_dim, width = 2 * config.latent_dim, config.channels
    layer = make_interaction(
        cast("Kind", config.interaction),
        slot_dim,
        config.rule_config,
        hidden_dim=config.memory_dim,
    )
    reader = BirthReader(
        config.slots,
        slot_dim,
        width,
        side=config.size // config.feature_stride,
        extent=config.extent,
        first_iterations=config.first_refinements,
        iterations=config.refinements,
    )
    return Tracker(
        FrameEncoder(config.size, width, stride=config.feature_stride, position=False),
        reader,
        layer,
        PatchDecoder(slot_dim, config.size, width, extent=config.extent),
        radius=config.extent,
        hidden_dim=config.memory_dim,
    )


def tracker_loss(
    config: Config,
    model: Tracker,
    images: UInt8[Tensor, "B T H W 3"],
    progress: Float[Tensor, ""],
) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
    frames = as_floats(images)
    seen, expected = model.draw_both(model(images))
    parts = {"mse": error(seen, frames), "next_mse": error(expected, frames[:, 1:])}
    # Summed over the colours: beside gradients of the mean, Adam's epsilon is not small.
    loss = CHANNELS * (parts["mse"] + config.expectation * parts["next_mse"])
    if config.disagreement:
        parts["disagreement"] = (
            seen.disagreement.mean() + config.expectation * expected.disagreement.mean()
        )
        loss = loss + config.disagreement * parts["disagreement"]
    if config.area:
        weight = ((progress - AREA_FROM) / (AREA_TO - AREA_FROM)).clamp(0.0, 1.0)
        share = seen.masks[:, :, :-1].mean((-1, -2))
        parts["area"] = (share + AREA_OF_NONE).sqrt().sum(-1).mean()
        loss = loss + config.area * weight * parts["area"]
    return loss, parts


def error(drawn: Drawing, frames: Float[Tensor, "B T 3 H W"]) -> Float[Tensor, ""]:
    return (drawn.images - frames).square().mean()
