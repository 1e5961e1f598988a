"""The data of the world models of Atari games, and the baseline of their metric in pixels.

Frames are on the device as bytes, and again as observations of two frames for the training step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.experiments.atari.config import Config
from nps.experiments.world_models.episodes import numbered
from nps.experiments.world_models.task import WorldModelTask
from nps.metrics.ranking import hits_and_mrr, ranks
from nps.models.world_model import Actions, WorldModel
from nps.worlds import atari
from nps.worlds.atari_games import FIRST_GAMES, GAMES, STEPS, world

if TYPE_CHECKING:
    from jaxtyping import Int, UInt8

SHOWN = 100
"""Training episodes that stand in for the validation set where none are held out: the log and the
pictures show them, and they choose nothing."""


@dataclass(frozen=True)
class ObservedEpisodes:
    """Episodes of a game as observations, channels last."""

    frames: UInt8[Tensor, "E T+2 50 50 3"]
    action: Int[Tensor, "E T"]

    @classmethod
    def of(cls, played: atari.AtariEpisodes, some: slice, device: torch.device) -> ObservedEpisodes:
        frames = played.frames[some].movedim(2, -1).contiguous()
        return cls(frames.to(device), played.actions[some].to(device))

    @property
    def lengths(self) -> Int[Tensor, "E"]:
        return self.action.new_full(self.action.shape[:1], self.action.shape[1] + 1)

    def actions(self, episode: Int[Tensor, "n"], time: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        return self.action[episode, time]

    def images(
        self, episode: Int[Tensor, "n"], time: Int[Tensor, "n"]
    ) -> UInt8[Tensor, "n 50 50 6"]:
        """The current frame and the previous one, as in `nps.worlds.atari.observe`."""
        rows: Tensor = Bytes.apply(self._rows, episode * (self.action.shape[1] + 1) + time)
        images: Tensor = rows.unflatten(-1, self.observed.shape[2:])
        return images

    @cached_property
    def observed(self) -> UInt8[Tensor, "E T+1 50 50 6"]:
        """Both frames of every observation."""
        return torch.cat([self.frames[:, 1:], self.frames[:, :-1]], -1)

    @cached_property
    def _rows(self) -> Int[Tensor, "E*(T+1) n"]:
        """Observations as rows of 8-byte integers: a GPU gathers per element, not per byte."""
        return self.observed.flatten(0, 1).flatten(1).view(torch.int64)

    def truth(self) -> Int[Tensor, "E T+1 2"]:
        """The numbers of both frames: equal exactly for equal observations."""
        number = numbered(self.frames.flatten(0, 1)).view(self.frames.shape[:2])
        return torch.stack([number[:, 1:], number[:, :-1]], -1).to(self.action.device)


class Bytes(torch.autograd.Function):
    """Some rows of 8-byte integers, as bytes; vmap cannot do that view by itself."""

    @staticmethod
    def forward(
        rows: Int[Tensor, "R n"], some: Int[Tensor, "*batch"]
    ) -> UInt8[Tensor, "*batch 8n"]:
        return rows[some].view(torch.uint8)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[None, int], rows: Tensor, some: Tensor
    ) -> tuple[Tensor, int]:
        return Bytes.apply(rows, some.movedim(in_dims[1], 0)), 0


class AtariTask(WorldModelTask[Config, ObservedEpisodes]):
    """Data and loss for one config."""

    def __init__(self, config: Config, device: torch.device) -> None:
        played = atari.load(config.game, config.settings())
        trained_on = config.train_episodes - config.validation_episodes
        shown = slice(-(config.validation_episodes or SHOWN), None)
        sets = {
            "train": ObservedEpisodes.of(played.train, slice(trained_on), device),
            "validation": ObservedEpisodes.of(played.train, shown, device),
            "test": ObservedEpisodes.of(played.test, slice(None), device),
        }
        actions = Actions(len(GAMES[config.game].actions), config.slots, config.action)
        super().__init__(config, device, sets, actions, draws_seed=config.data_seed, judged=STEPS)
        self.fingerprint = world(GAMES[config.game])
        self.unrecorded_fingerprint = world(FIRST_GAMES[config.game])

    def score(self, validation: Mapping[str, Any], training: Mapping[str, float]) -> float:
        """The loss on episodes that are held out, or C-SWM's choice where none are."""
        return float((validation if self.config.validation_episodes else training)["loss"])

    @torch.no_grad()
    def test(self, model: WorldModel) -> dict[str, Any]:
        """The ranking, and that of the copy-input baseline."""
        return {**super().test(model), **self.copied}

    @cached_property
    def copied(self) -> dict[str, float]:
        """`copy_…`: ranking of the copy-input baseline, which predicts the first observation."""
        data = self.sets["test"]
        observed, state = data.observed.flatten(2).cpu(), data.truth().cpu()
        # Pixels that never change add nothing to a distance. In float64 sums of bytes are exact.
        changes = (observed != observed[0, 0]).flatten(0, 1).any(0)
        pixels = observed[..., changes].double()
        metrics: dict[str, float] = {}
        for step in self.horizons:
            first, true = pixels[:, 0], pixels[:, step]
            both = {"": ranks(first, true), "_distinct": ranks(first, true, state=state[:, step])}
            for candidates, found in both.items():
                for ties, each in {"": found.lenient, "_strict": found.strict}.items():
                    score = hits_and_mrr(each)
                    metrics[f"copy_h1{candidates}{ties}_{step}"] = score.hits
                    metrics[f"copy_mrr{candidates}{ties}_{step}"] = score.mrr
        return metrics
