"""The data of a world model of the user's own episodes (experiments/custom/)."""

from __future__ import annotations

from typing import Any

import torch

from nps.errors import UserError, say
from nps.experiments.custom.config import Config
from nps.experiments.custom.data import TEST_STEPS, Segments, all_segments, split
from nps.experiments.custom.steps import predict_steps, summary
from nps.experiments.world_models.model import make_encoder
from nps.experiments.world_models.task import WorldModelTask
from nps.models.world_model import Actions, AnyActions, ContinuousActions, WorldModel
from nps.worlds.custom import RecordedEpisodes, load_episodes
from nps.worlds.custom.load import locate


class CustomTask(WorldModelTask[Config, Segments]):
    """Data and loss for one config. Refuses data that do not fit, before a run starts."""

    rollouts: Segments
    """Every step of the test episodes, in roll-outs of unequal length."""

    def __init__(self, config: Config, device: torch.device) -> None:
        require_episodes(config)
        data = load_episodes(config.episodes, config.channels)
        try:
            sets = dict(split(data, config, device))
            self.rollouts = sets.pop(TEST_STEPS)
            super().__init__(
                config,
                device,
                sets,
                make_actions(data, config),
                draws_seed=config.data_seed,
            )
            with torch.device("meta"):  # checks the shapes only
                make_encoder(config, self.image)
            self.fingerprint = data.fingerprint()
        except ValueError as error:
            raise UserError(f"{config.episodes}: {error}") from None
        _warn_if_short(self)

    @torch.no_grad()
    def test(self, model: WorldModel) -> dict[str, Any]:
        """The share of predicted steps with its floors, and C-SWM's ranking."""
        return {**summary(predict_steps(model, self.rollouts)), **super().test(model)}

    @property
    def names(self) -> list[str] | None:
        """Names of the actions, if they are discrete."""
        known = self.actions
        return list(map(str, range(known.count))) if isinstance(known, Actions) else None


def require_episodes(config: Config) -> None:
    """Refuse a config without episodes, or whose file does not exist."""
    if not config.episodes:
        raise UserError("episodes: got none, expected --data with their file or folder")
    if not locate(config.episodes).exists():
        raise UserError(f"{config.episodes}: no such file or folder; give its new path with --data")


def with_test_set(task: CustomTask, path: str) -> CustomTask:
    """The task with all episodes of another file or folder as its test set."""
    try:
        data = load_episodes(path, task.config.channels)
        _require_alike(data, task)
        sets = all_segments(data, task.config, task.device)
        other = task.tested_on(sets["test"])
        other.rollouts = sets[TEST_STEPS]
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    _warn_if_short(other)
    return other


def _warn_if_short(task: CustomTask) -> None:
    longest, wanted = max(task.horizons), task.config.test_steps
    if longest < wanted:
        say(f"test episodes are too short for roll-outs of {wanted} steps; using {longest}")


def _require_alike(data: RecordedEpisodes, task: CustomTask) -> None:
    """Refuse images or actions of another size than those of training."""
    height, width, channels = task.image
    size, expected = tuple(data.obs.shape[1:]), (height, width, channels // task.config.frames)
    if size != expected:
        raise ValueError(f"obs: got (H, W, C) = {size}, expected {expected} as in training")
    known = task.actions
    if data.discrete != isinstance(known, Actions):
        kinds = ("continuous", "discrete")
        got, expected_kind = kinds[data.discrete], kinds[not data.discrete]
        raise ValueError(f"action: got {got} actions, expected {expected_kind} as in training")
    if isinstance(known, Actions) and data.action_size > known.count:
        raise ValueError(
            f"action: got {data.action_size - 1}, expected 0 to {known.count - 1} as in training"
        )
    if isinstance(known, ContinuousActions) and data.action_size != known.dim:
        raise ValueError(
            f"action: got {data.action_size} numbers, expected {known.dim} as in training"
        )


def make_actions(data: RecordedEpisodes, config: Config) -> AnyActions:
    if data.discrete:
        return Actions(data.action_size, config.slots, config.action)
    if config.action != "copied":
        raise ValueError(f"action: got {config.action}, expected copied for continuous actions")
    return ContinuousActions(data.action_size, config.slots)
