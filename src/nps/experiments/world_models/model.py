"""Build a world model from its settings: the encoder, and the transition with its actions."""

from __future__ import annotations

from torch import nn

from nps.experiments.world_models.config import WorldModelConfig
from nps.models.transitions import Transition, make_transition
from nps.models.world_model import AnyActions, WorldModel
from nps.perception.extractors import ObjectEncoder
from nps.perception.slot_encoder import SlotEncoder


def make_model(
    config: WorldModelConfig, actions: AnyActions, image: tuple[int, int, int]
) -> WorldModel:
    """The whole model, initialised by torch's global generator; an image is (H, W, C)."""
    encoder = make_encoder(config, image)
    return WorldModel(encoder, make_dynamics(config, actions), actions)


def make_encoder(config: WorldModelConfig, image: tuple[int, int, int]) -> nn.Module:
    """The encoder: images (B, H, W, C) -> slots (B, M, D)."""
    height, width, channels = image
    slots = config.slots, config.slot_dim
    if config.extractor == "slot-attention":
        return SlotEncoder(*slots, channels=channels, size=(height, width), width=config.width)
    return ObjectEncoder(
        config.extractor,
        *slots,
        channels=channels,
        size=(height, width),
        hidden_dim=config.hidden_dim,
        width=config.width,
        maps=config.maps,
    )


def make_dynamics(config: WorldModelConfig, actions: AnyActions) -> Transition:
    """The transition: slots and actions -> the next slots."""
    return make_transition(
        config.transition,
        config.slot_dim,
        actions.dim,
        config.rule_config,
        slots=config.slots,
        selection_per_slot=config.selection == "per-slot",
        index_dim=actions.index_dim,
        hidden_dim=config.hidden_dim,
    )
