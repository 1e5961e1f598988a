"""What `nps view` shows of a world model of an Atari game, and the game itself where ale-py is.

With ale-py the truth follows another action: the episode is played again, warm-up and all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nps.errors import UserError, extra
from nps.experiments.world_models.imagination import OVER, Imagination, Reality
from nps.experiments.world_models.scenes import Scene
from nps.experiments.world_models.workbench import KEPT, WorldModelWorkbench
from nps.inspect.edits import Edits
from nps.inspect.workbench import World
from nps.models.world_model import WorldModel
from nps.worlds.atari_games import GAMES, SIDE, Name
from nps.worlds.atari_play import SETS, Emulator, drawn, played
from nps.worlds.lanczos import shrink

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

ARROWS = {"ArrowUp": "UP", "ArrowRight": "RIGHT", "ArrowDown": "DOWN", "ArrowLeft": "LEFT"}
FIRE = "f"


class AtariWorkbench(WorldModelWorkbench):
    """A world model of one game."""

    def __init__(self, task: Any, model: WorldModel) -> None:
        super().__init__(task, model)
        self.game: Name = task.config.game
        self.actions = GAMES[self.game].actions
        self._actions_of = lru_cache(KEPT)(self._find_actions)

    @property
    def keys(self) -> Mapping[str, Sequence[int]]:  # type: ignore[override]
        names = {**ARROWS, FIRE: "FIRE"}
        known = list(self.actions)
        return {key: [known.index(name)] for key, name in names.items() if name in known}

    def scene(self, episode: int, edits: Edits) -> Scene:
        recorded = super().scene(episode, edits)
        frames = self._frames_after(episode, edits) if edits.acted else None
        if frames is None:
            return recorded
        images = torch.from_numpy(np.concatenate([frames[1:], frames[:-1]], -1))
        return replace(recorded, images=images.to(self.task.device), known=None)

    def _frames_after(self, episode: int, edits: Edits) -> UInt8[ndarray, "12 50 50 3"] | None:
        """The frames under other actions; None if that cannot be known."""
        actions = self._actions_of(episode)
        if actions is None:
            return None
        changed = actions.copy()
        for edit in edits.acted:
            changed[GAMES[self.game].warm_up + edit.step] = edit.action
        frames = played(Emulator(self.game), self.game, changed)
        return None if frames is None else np.moveaxis(frames, 1, -1)

    def _find_actions(self, episode: int) -> UInt8[ndarray, "n"] | None:
        """All actions of a validation episode, if this emulator plays it as it was recorded."""
        if find_spec("ale_py") is None:
            return None
        data = self.task.sets["validation"]
        number = self.task.config.train_episodes - len(data.lengths) + episode
        key = (self.task.config.data_seed, SETS.index("train"), number)
        actions, frames = drawn(Emulator(self.game), self.game, key)
        alike = np.array_equal(np.moveaxis(frames, 1, -1), data.frames[episode].cpu().numpy())
        return actions if alike else None

    def world(self, seed: int) -> World | None:
        if find_spec("ale_py") is None:
            raise UserError(f"playing needs the extra: {extra('atari')}")
        return Imagination(self, AtariReality(self.game, seed, self.task.device))


class AtariReality(Reality):
    """A game after its warm-up, as in the recorded episodes, for any number of steps."""

    def __init__(self, game: Name, seed: int, device: torch.device) -> None:
        self._emulator, self._rows, self._device = Emulator(game), GAMES[game].rows, device
        draw = np.random.default_rng(seed)
        self._emulator.reset()
        for action in draw.integers(len(GAMES[game].actions), size=GAMES[game].warm_up):
            self._emulator.act(int(action))
        self._frames = [self._frame()]
        self.act(0)

    def scene(self) -> Scene:
        now, before = self._frames[-1], self._frames[-2]
        images = torch.from_numpy(np.concatenate([now, before], -1))[None]
        return Scene(images.to(self._device), torch.zeros(0, dtype=torch.long))

    def act(self, action: int) -> str:
        if self._emulator.over():
            return OVER
        self._emulator.act(action)
        self._frames = [self._frames[-1], self._frame()]
        return ""

    def _frame(self) -> UInt8[ndarray, "50 50 3"]:
        top, bottom = self._rows
        return np.moveaxis(shrink(self._emulator.screen()[top:bottom], SIDE, SIDE), 0, -1)
