"""Bouncing balls in the workbench: frames that the model sees, then frames without input.

A state is the slots that have read a frame, with the picture that was drawn before reading it. What
is set by hand is set after reading. While the model still sees frames, it corrects that in the next
one; after that, it goes on from it. Scenes are those of validation, simulated for longer.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nps.experiments.balls.config import BALLS
from nps.experiments.balls.measures import slots_of_balls, tables
from nps.experiments.balls.task import BallsTask
from nps.experiments.stepping import KEPT, Episode, Frame, Rolled, SteppedWorkbench
from nps.experiments.video_slots import (
    READABLE,
    as_bytes,
    middles,
    own_places,
    readable,
    rescaled,
    unit,
)
from nps.inspect.grids import to_bytes
from nps.inspect.playback import Playback
from nps.models.scoff import Scoff
from nps.training import rng
from nps.worlds.balls import Scenes, make_scenes

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int64, UInt8
    from numpy import ndarray


@dataclass(frozen=True)
class Scene(Episode):
    number: int
    images: UInt8[Tensor, "T+1 H W 3"]
    labels: UInt8[Tensor, "T+1 H W"]
    views: list[Any]
    """What slots can see of each of the frames that are seen."""
    noise: Float[Tensor, "M D"]


class State(NamedTuple):
    slots: Float[Tensor, "M D"]
    present: Bool[Tensor, "1 M"] | None
    image: Float[Tensor, "3 H W"]
    masks: Float[Tensor, "K H W"]


class BallsWorkbench(SteppedWorkbench[Scene, State]):
    task: BallsTask
    model: Scoff
    error_name = "squared error"
    decodes = True

    def __init__(self, task: BallsTask, model: Scoff) -> None:
        super().__init__(task, model)
        self._scene = lru_cache(KEPT)(self._make_scene)
        self._slot_of_ball = lru_cache(KEPT)(self._match)

    def count(self) -> int:
        return self.task.config.validation_scenes

    def title(self, episode: int) -> str:
        return f"validation scene {episode}"

    # -- what can be read of a slot -----------------------------------------------------------

    @property
    def feature_names(self) -> tuple[str, ...]:
        if self.model.placed:
            return READABLE
        return tuple(f"z{i}" for i in range(self.task.config.slot_dim))

    def features(self, slots: Float[ndarray, "*batch M D"]) -> Float[ndarray, "*batch M F"]:
        return readable(slots) if self.model.placed else slots

    def direction(self, feature: str) -> Float[ndarray, "D"]:
        index = self.feature_names.index(feature)
        return unit(index, self.task.config.slot_dim, placed=self.model.placed)

    def layer_slots(self, before: Float[ndarray, "*batch M D"]) -> Float[ndarray, "*batch M D"]:
        """The layer reads places and velocities in radii."""
        return before if self.model.radius is None else rescaled(before, 1.0 / self.model.radius)

    def layer_direction(self, feature: str) -> Float[ndarray, "D"]:
        along, radius = self.direction(feature), self.model.radius
        return along if radius is None else rescaled(along, radius)

    def picture(self, slots: Float[ndarray, "M D"], slot: int) -> UInt8[ndarray, "H W 3"]:
        """One slot before the background."""
        own = torch.from_numpy(slots[slot]).to(self.task.device, torch.float32)
        with torch.no_grad():
            return as_bytes(self.model.decoder(own.view(1, 1, -1)).images[0])

    # -- what is true -------------------------------------------------------------------------

    @cached_property
    def scenes(self) -> Scenes:
        """The validation scenes, with frames after those that the task has."""
        config = self.task.config
        frames = config.seen_frames + 1 + config.rollout_frames
        seed = rng.derive(config.data_seed, "validation")
        return make_scenes(self.count(), frames, seed, balls=BALLS, device=self.task.device)

    @cached_property
    def noise(self) -> Float[Tensor, "B M D"]:
        parts = self.task.parts("validation", self.task.config.slots, rollout=False)
        return torch.cat([part.noise for part in parts])

    def episode(self, number: int, acted: Mapping[int, int]) -> Scene:
        return self._scene(number)

    @torch.no_grad()
    def _make_scene(self, number: int) -> Scene:
        images, labels = (
            x[0] for x in self.task.draw_frames(self.scenes.at(slice(number, number + 1)))
        )
        seen = self.task.config.seen_frames
        features = self.model.encoder(images[:seen])
        views = self.model.reader.look_at(features.unsqueeze(1))
        names = tuple(f"slot {m}" for m in range(self.task.config.slots))
        noise = self.noise[number]
        return Scene(("",) * (len(images) - 1), names, None, number, images, labels, views, noise)

    def _match(self, number: int) -> Int64[ndarray, "balls"]:
        """The slot that shows each ball while frames are seen, or -1."""
        scene, states = self._scene(number), self._unedited(number).states
        seen = slice(2, 1 + self.task.config.seen_frames)  # of these, predictions count
        segments = torch.stack([state.masks.argmax(0) for state in states[seen]])
        balls, components = self.scenes.present.shape[1] + 1, len(states[0].masks)
        table = tables(scene.labels[None, seen], segments[None], balls, components)
        found: ndarray = slots_of_balls(table, len(scene.slot_names))[0].cpu().numpy()
        return found

    def _events(self, number: int, step: int) -> str:
        """Balls go by the numbers of their slots."""
        names = [str(slot) if slot >= 0 else "?" for slot in self._slot_of_ball(number).tolist()]
        collided = self.scenes.collided[number, step + 1].tolist()
        bounced = self.scenes.bounced[number, step + 1].tolist()
        pairs = [pair for pair in itertools.combinations(range(len(names)), 2)
                 if collided[pair[0]][pair[1]]]  # fmt: skip
        hits = [f"collision of {' and '.join(sorted((names[i], names[j])))}" for i, j in pairs]
        walls = [f"bounce of {name}" for name, hit in zip(names, bounced, strict=True) if hit]
        return ", ".join([*hits, *sorted(walls)])

    def _playback(self, episode: Scene, rolled: Rolled[State]) -> Playback:
        events = tuple(self._events(episode.number, t) for t in range(episode.steps))
        return replace(super()._playback(episode, rolled), events=events)

    # -- what the model makes of it -----------------------------------------------------------

    def start(self, episode: Scene) -> State:
        first = episode.views[0]
        noise = episode.noise.unsqueeze(0)
        slots = self.model.reader.begin(first, len(episode.noise), noise)
        slots, present = self.model.read(first, slots, first=True)
        images, masks, _ = self.model.decoder(slots)
        return State(slots[0], present, images[0], masks[0])

    def advance(self, episode: Scene, state: State, step: int) -> State:
        new, _, _ = self.model.step(state.slots.unsqueeze(0), state.present)
        images, masks, _ = self.model.decoder(new)
        seen = step + 1 < len(episode.views)
        view = episode.views[step + 1] if seen else self.model.view_of(images)
        slots, present = self.model.read(view, new, first=False)
        return State(slots[0], present, images[0], masks[0])

    def slots_of(self, state: State) -> Float[Tensor, "M D"]:
        return state.slots

    def with_slots(self, state: State, slots: Float[Tensor, "M D"]) -> State:
        return state._replace(slots=slots)

    def frame(self, episode: Scene, state: State, step: int) -> Frame:
        true = episode.images[step].cpu().numpy()
        drawn: ndarray = state.image.movedim(0, -1).cpu().numpy()
        slots, own = state.slots.cpu().numpy(), state.masks[: len(state.slots)].cpu().numpy()
        return Frame(
            true,
            to_bytes(drawn),
            slots,
            error=float(np.square(drawn - true / 255.0).mean()),
            masks=to_bytes(own),
            places=self._places(slots, own, state.present),
        )

    def _places(
        self, slots: ndarray, own: Float[ndarray, "M H W"], present: Tensor | None
    ) -> Float[ndarray, "M 2"]:
        """Of slots with a place that see something; else the middle of what a slot draws."""
        if not self.model.placed:
            return middles(own)
        there = np.ones(len(slots), bool) if present is None else present[0].cpu().numpy()
        return np.where(there[:, None], own_places(slots), np.nan)
