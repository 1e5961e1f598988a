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
from nps.worlds import blocks, stacks
from nps.worlds.blocks.drawing import PIXELS
from nps.worlds.stacks.physics import Simulator
from nps.worlds.stacks.towers import draw_tower

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


class Tower(gymnasium.Env[Image, np.int64]):
    """A tower of shapes, one of which may be pushed in every frame (extra `stacks`).

    An observation is an image. `info` has the true state: `position`, `rotation` (quaternions, the
    real part first), and what `touched` what since the frame before. Action 0 pushes nothing;
    1 + 4 m + d pushes shape m, counted from below, in direction d: to +x, -x, +y, -y.

    Args:
        objects: number of shapes, 2 to 6.
        falls: whether the tower falls by itself.
        speed: what a push adds to a shape's velocity, in units a second; a cube's side is 1 unit.
        pixels: side of the images.
        render_mode: "rgb_array", or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012, Gymnasium's own way

    def __init__(
        self,
        objects: int = 3,
        falls: bool = False,
        speed: float = 2.0,
        pixels: int = 64,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode: got {render_mode!r}, expected 'rgb_array' or None")
        if not 2 <= objects <= len(stacks.PALETTE):
            raise ValueError(f"objects: got {objects}, expected 2 to {len(stacks.PALETTE)}")
        self.objects, self.falls, self.speed, self.pixels = objects, falls, speed, pixels
        self.render_mode = render_mode
        self._start(np.random.default_rng(0))
        self.action_space = gymnasium.spaces.Discrete(1 + 4 * objects)
        self.observation_space = gymnasium.spaces.Box(0, 255, (pixels, pixels, 3), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, dict[str, Any]]:
        super().reset(seed=seed)
        self._start(self.np_random)
        return self._image(), self._info()

    def step(self, action: np.int64) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"action: got {action!r}, expected 0 to {4 * self.objects}")
        if action:
            shape, direction = divmod(int(action) - 1, 4)
            push = np.zeros(3)
            push[direction // 2] = self.speed * (-1.0 if direction % 2 else 1.0)
            self.world.push(shape, push)
        self.touched = self.world.frame()
        return self._image(), 0.0, False, False, self._info()

    def render(self) -> Image | None:
        if self.render_mode is None:
            gymnasium.logger.warn('render() without a mode: make(..., render_mode="rgb_array")')
            return None
        return self._image()

    def _start(self, draw: np.random.Generator) -> None:
        self.tower = draw_tower(draw, self.objects, falls=self.falls)
        self.world = Simulator(self.tower)
        self.touched = self.world.touching()

    def _image(self) -> Image:
        place, turn = self.world.position, self.world.rotation
        parts = (self.tower.kind.astype(np.int64), self.tower.size.astype(np.float32), place, turn)
        shapes = stacks.Shapes(*(torch.from_numpy(x).unsqueeze(0) for x in parts))
        colour = torch.from_numpy(self.tower.colour.astype(np.int64)).unsqueeze(0)
        return stacks.render(shapes, colour, pixels=self.pixels)[0].numpy()

    def _info(self) -> dict[str, Any]:
        m = self.objects
        return {
            "position": self.world.position,
            "rotation": self.world.rotation,
            "touched": self.touched[:m, :m],
        }


gymnasium.register(
    id="nps/WeightedBlocks-v0",
    entry_point="nps.worlds.environments:WeightedBlocks",
    max_episode_steps=100,
)
gymnasium.register(
    id="nps/Tower-v0",
    entry_point="nps.worlds.environments:Tower",
    max_episode_steps=31,
)
