"""Data and loss of a world model of the user's own episodes."""

from __future__ import annotations

from pathlib import Path

import torch

from nps.errors import UserError, say
from nps.experiments.custom.config import Config
from nps.experiments.custom.data import Stretches, split, whole
from nps.experiments.world_models.model import make_encoder
from nps.experiments.world_models.task import WorldModelTask
from nps.models.world_model import Actions, AnyActions, ContinuousActions
from nps.worlds.custom import Episodes, load_episodes


class CustomTask(WorldModelTask[Config, Stretches]):
    """Data and loss for one config. Whatever does not fit is told here, before a run begins."""

    def __init__(self, config: Config, device: torch.device) -> None:
        require_episodes(config)
        data = load_episodes(config.episodes, config.channels)
        try:
            super().__init__(
                config,
                device,
                split(data, config, device),
                make_actions(data, config),
                draws_seed=config.data_seed,
            )
            with torch.device("meta"):  # told by its shape alone
                make_encoder(config, self.image)
            self.fingerprint = data.fingerprint()
        except ValueError as error:
            raise UserError(f"{config.episodes}: {error}") from None
        _tell_shorter(self)

    @property
    def names(self) -> list[str] | None:
        """Of the actions, if they are discrete."""
        known = self.actions
        return list(map(str, range(known.count))) if isinstance(known, Actions) else None


def require_episodes(config: Config) -> None:
    """There is something to read."""
    if not config.episodes:
        raise UserError("episodes: none given, expected --data, their file or folder")
    if not Path(config.episodes).exists():
        raise UserError(f"{config.episodes}: no such file or folder; say by --data where it is")


def with_test_set(task: CustomTask, path: str) -> CustomTask:
    """The task with all of other episodes as its test set."""
    try:
        data = load_episodes(path, task.config.channels)
        _require_alike(data, task)
        other = task.tested_on(whole(data, task.config, task.device))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    _tell_shorter(other)
    return other


def _tell_shorter(task: CustomTask) -> None:
    most, asked = max(task.horizons), task.config.test_steps
    if most < asked:
        say(f"test episodes are too short to roll out {asked} steps: it is {most}")


def _require_alike(data: Episodes, task: CustomTask) -> None:
    """A model of some images and actions can be asked for no others."""
    height, width, channels = task.image
    size, expected = tuple(data.obs.shape[1:]), (channels, height, width)
    if size != expected:
        raise ValueError(f"obs: got (C, H, W) = {size}, expected {expected} as in training")
    known = task.actions
    if data.discrete != isinstance(known, Actions):
        kinds = ("continuous", "discrete")
        got, expected_kind = kinds[data.discrete], kinds[not data.discrete]
        raise ValueError(f"action: got {got} ones, expected {expected_kind} as in training")
    if isinstance(known, Actions) and data.action_size > known.count:
        raise ValueError(
            f"action: got {data.action_size - 1}, expected 0 to {known.count - 1} as in training"
        )
    if isinstance(known, ContinuousActions) and data.action_size != known.dim:
        raise ValueError(
            f"action: got {data.action_size} numbers, expected {known.dim} as in training"
        )


def make_actions(data: Episodes, config: Config) -> AnyActions:
    if data.discrete:
        return Actions(data.action_size, config.slots, config.action)
    if config.action != "copied":
        raise ValueError(f"action: got {config.action}, expected copied for continuous actions")
    return ContinuousActions(data.action_size, config.slots)
