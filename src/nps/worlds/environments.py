"""Our worlds as Gymnasium environments, with the rules of the vectorised ones (extra `gym`).

`gymnasium.make("nps.worlds.environments:nps/WeightedBlocks-v0")` needs no import: Gymnasium imports
the module before the colon, and that registers the environments. (Gymnasium 1.0 removed the entry
points by which an installed package could register itself.) They are worlds without a task: the
reward is always 0, and an episode ends after a fixed number of steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from nps.errors import extra
from nps.worlds import blocks
from nps.worlds.blocks.drawing import PIXELS

try:
    import gymnasium
except ImportError:
    message = f"environments need the extra: {extra('gym')}"
    raise ModuleNotFoundError(message, name="gymnasium") from None

Image = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


class WeightedBlocks(gymnasium.Env[Image, np.int64]):
    """One world of weighted blocks.

    An observation is an image, 50 x 50 x 3. `info` has the true state: `positions` and `weights`,
    and after a step its `outcome` ("nothing", "free", "push" or "invalid").

    Args:
        mode: how an episode's weights, colours and shapes are drawn, a name in
            `nps.worlds.blocks.MODES`.
        objects: number of blocks, 2 to 6.
        stay: whether there is an action to stay: `objects` * 5 actions, else * 4.
        render_mode: "rgb_array", or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012, Gymnasium's own way

    def __init__(
        self,
        mode: str = "unobserved",
        objects: int = 5,
        stay: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode: got {render_mode!r}, expected 'rgb_array' or None")
        self.mode, self.objects, self.stay, self.render_mode = mode, objects, stay, render_mode
        self.state = self._start(seed=0)  # checks mode and objects
        self.action_space = gymnasium.spaces.Discrete(blocks.action_count(objects, stay))
        self.observation_space = gymnasium.spaces.Box(0, 255, (PIXELS, PIXELS, 3), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self._start(seed=int(self.np_random.integers(2**63)))
        return self._image(), self._info()

    def step(self, action: np.int64) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            last = blocks.action_count(self.objects, self.stay) - 1
            raise ValueError(f"action: got {action!r}, expected 0 to {last}")
        self.state, outcome = blocks.step(self.state, torch.tensor([int(action)]), self.stay)
        name = blocks.Outcome(int(outcome)).name.lower()
        return self._image(), 0.0, False, False, {"outcome": name, **self._info()}

    def render(self) -> Image | None:
        if self.render_mode is None:
            gymnasium.logger.warn('render() without a mode: make(..., render_mode="rgb_array")')
            return None
        return self._image()

    def _start(self, seed: int) -> blocks.State:
        return blocks.start(1, self.mode, torch.Generator().manual_seed(seed), self.objects)

    def _image(self) -> Image:
        return blocks.render(self.state)[0].numpy()

    def _info(self) -> dict[str, Any]:
        known = ("positions", "weights")
        return {part: getattr(self.state, part)[0].numpy().copy() for part in known}


gymnasium.register(
    id="nps/WeightedBlocks-v0",
    entry_point="nps.worlds.environments:WeightedBlocks",
    max_episode_steps=100,
)
