"""OP3 from its settings, and the loss of a clip: that of every step of its schedule, weighted."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

import torch
from torch import Tensor

from nps.experiments.sprites.config import Config
from nps.experiments.sprites.watching import as_floats
from nps.models.op3 import OP3, Kind, make_interaction
from nps.models.op3_schedule import loss_weights, rprp

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8


def make_op3(config: Config) -> OP3:
    assert config.interaction in get_args(Kind)  # as the config has checked
    kind = cast("Kind", config.interaction)
    return OP3(
        make_interaction(kind, config.rule_config, latent_dim=config.latent_dim),
        config.size,
        latent_dim=config.latent_dim,
        channels=config.channels,
        hidden_dim=config.memory_dim,
        beta=config.beta,
    )


def op3_loss(
    config: Config, model: OP3, images: UInt8[Tensor, "B T H W 3"]
) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
    frames = as_floats(images)
    schedule = rprp(config.frames, first=config.first_refinements, later=config.refinements)
    moments = list(model(frames, schedule, config.slots))
    last = moments[-1].loss
    total = torch.zeros((), device=frames.device)
    for weight, moment in zip(loss_weights(schedule), moments, strict=True):
        assert moment.loss is not None  # every frame of a clip is there
        total = total + weight * moment.loss.total
    assert last is not None
    return total, {"pixels": last.pixels, "divergence": last.divergence}
