"""What `nps view` shows of a world model of the user's own episodes.

Where the file says from which Gymnasium environment it was recorded, that environment can be
played in beside the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nps.experiments.world_models.imagination import OVER, Imagination, Reality
from nps.experiments.world_models.scenes import Scene
from nps.experiments.world_models.workbench import WorldModelWorkbench
from nps.inspect.workbench import World
from nps.models.world_model import WorldModel
from nps.worlds.custom.environment import image_of
from nps.worlds.custom.load import locate
from nps.worlds.custom.origin import Origin, origin_of
from nps.worlds.custom.user_code import errors_in_one_line

if TYPE_CHECKING:
    from jaxtyping import Shaped

DIGITS = 10


class CustomWorkbench(WorldModelWorkbench):
    """A world model of recorded episodes."""

    def __init__(self, task: Any, model: WorldModel) -> None:
        super().__init__(task, model)
        self.actions = [f"action {name}" for name in task.names or ()]

    @property
    def keys(self) -> Mapping[str, Sequence[int]]:  # type: ignore[override]
        """The number of an action does it."""
        return {str(n): [n] for n in range(min(DIGITS, len(self.actions)))}

    def world(self, seed: int) -> World | None:
        origin = origin_of(locate(self.task.config.episodes)) if self.actions else None
        if origin is None:
            return None
        reality = GymnasiumReality(origin, seed, self.task)
        height, width, channels = self.task.image
        if reality.scene().images.shape[1:] != (height, width, channels):
            return None
        return Imagination(self, reality)


class GymnasiumReality(Reality):
    """An environment, observed as it was recorded."""

    def __init__(self, origin: Origin, seed: int, task: Any) -> None:
        self._size, self._stacked, self._device = origin.size, task.config.frames, task.device
        self._float = task.sets["train"].obs.is_floating_point()
        self._env, self._over = origin.make(), False
        with errors_in_one_line("reset"):
            observation, _ = self._env.reset(seed=seed)
            self._frames = [self._image(observation)] * self._stacked

    def scene(self) -> Scene:
        return Scene(torch.cat(self._frames, -1)[None], torch.zeros(0, dtype=torch.long))

    def act(self, action: int) -> str:
        if self._over:
            return OVER
        start = int(getattr(self._env.action_space, "start", 0))
        with errors_in_one_line("step"):
            observation, _, ended, cut, _ = self._env.step(np.int64(action + start))
            self._frames = [self._image(observation), *self._frames][: self._stacked]
        self._over = bool(ended or cut)
        return "the end" if self._over else ""

    def _image(self, observation: Any) -> Shaped[Tensor, "H W C"]:
        image = torch.from_numpy(image_of(self._env, observation, self._size)).to(self._device)
        return image / 255 if self._float else image
