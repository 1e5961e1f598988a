"""Sprites-MOT in the workbench: frames that the model sees, then frames without input.

Episodes are the validation videos, simulated for longer: their frames are all seen, and as many as
a training clip has follow unseen. Each frame is shown as the model expects it before seeing it,
and frame 0 as it draws what it has seen. A state is the slots that have read a frame, and what was
expected of that frame. What is set by hand is set after reading: where the next frame is seen, the
model corrects it there, and goes on from it where it is not.

Models differ in `workbench_op3.py` and `workbench_tracker.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nps.experiments.balls.measures import tables
from nps.experiments.sprites.task import SpritesTask
from nps.experiments.sprites.watching import as_floats
from nps.experiments.stepping import KEPT, Episode, Frame, Rolled, SteppedWorkbench
from nps.inspect.grids import to_bytes
from nps.inspect.playback import Playback
from nps.metrics.tracking import LEAST_IOU
from nps.training import rng
from nps.worlds.sprites import Videos, make_videos, render

if TYPE_CHECKING:
    from jaxtyping import Float, Int64, Integer, UInt8
    from numpy import ndarray


@dataclass(frozen=True)
class Video(Episode):
    number: int
    images: UInt8[Tensor, "T+1 H W 3"]
    labels: UInt8[Tensor, "T+1 H W"]
    given: list[Any]
    """What the model reads of each of the frames that are seen."""


class State(NamedTuple):
    slots: Float[Tensor, "M D"]
    image: Float[Tensor, "3 H W"]
    masks: Float[Tensor, "K H W"]
    """Expected, like the image."""
    own: Any
    """What else the model goes on from."""


class SpritesWorkbench(SteppedWorkbench[Video, State]):
    task: SpritesTask
    error_name = "squared error"
    decodes = True

    def __init__(self, task: SpritesTask, model: Any) -> None:
        super().__init__(task, model)
        self._video = lru_cache(KEPT)(self._make_video)
        self._slot_of_sprite = lru_cache(KEPT)(self._match)

    @abstractmethod
    def given(self, frames: Float[Tensor, "S 3 H W"]) -> list[Any]:
        """What the model reads of each frame that is seen."""

    @abstractmethod
    def masks(self, state: State) -> Float[Tensor, "K H W"]:
        """What is drawn once the frame was seen; of the slots and, in the tracker, the
        background."""

    @abstractmethod
    def places(self, state: State) -> Float[ndarray, "M 2"]:
        """Row and column of each slot; NaN where it has none."""

    def count(self) -> int:
        return self.task.config.validation_videos

    def title(self, episode: int) -> str:
        return f"validation video {episode}"

    # -- what is true -------------------------------------------------------------------------

    @cached_property
    def videos(self) -> Videos:
        """The validation videos, with frames after those that the task has."""
        config = self.task.config
        return make_videos(
            self.count(),
            rng.derive(config.data_seed, "validation"),
            frames=config.video_frames,
            bounce=config.bounce,
            further=config.frames,
            device=self.task.device,
        )

    def episode(self, number: int, acted: Mapping[int, int]) -> Video:
        return self._video(number)

    @torch.no_grad()
    def _make_video(self, number: int) -> Video:
        config = self.task.config
        one = self.videos.at(slice(number, number + 1))
        images, labels = (drawn[0] for drawn in render(one, size=config.size))
        given = self.given(as_floats(images[: config.video_frames]))
        names = tuple(f"slot {m}" for m in range(config.slots))
        return Video(("",) * (len(images) - 1), names, None, number, images, labels, given)

    @torch.no_grad()
    def _match(self, number: int) -> Int64[ndarray, "N"]:
        """The slot that shows each sprite of a video once frames are seen, or -1."""
        video, states = self._video(number), self._unedited(number).states
        seen = slice(self.task.config.video_frames)
        segments = torch.stack([self.masks(state).argmax(0) for state in states[seen]])
        found = slots_of_sprites(
            video.labels[seen],
            segments,
            self.videos.identity[number, seen],
            1 + int(self.videos.identity[number].max()),
            self.task.config.segments,
        )
        found = torch.where(found < self.task.config.slots, found, -1)
        slots: ndarray = found.cpu().numpy()
        return slots

    def _playback(self, episode: Video, rolled: Rolled[State]) -> Playback:
        shown = self._slot_of_sprite(episode.number).tolist()
        names = [str(slot) if slot >= 0 else "?" for slot in shown]
        one = Videos(*(part[episode.number] for part in self.videos))
        events = tuple(happened(one, names, step) for step in range(episode.steps))
        return replace(super()._playback(episode, rolled), events=events)

    # -- what can be seen of a state ----------------------------------------------------------

    def slots_of(self, state: State) -> Float[Tensor, "M D"]:
        return state.slots

    def with_slots(self, state: State, slots: Float[Tensor, "M D"]) -> State:
        return state._replace(slots=slots)

    def frame(self, episode: Video, state: State, step: int) -> Frame:
        true = episode.images[step].cpu().numpy()
        drawn: ndarray = state.image.movedim(0, -1).cpu().numpy()
        return Frame(
            true,
            to_bytes(drawn),
            state.slots.cpu().numpy(),
            error=float(np.square(drawn - true / 255.0).mean()),
            masks=to_bytes(state.masks[: len(state.slots)].cpu().numpy()),
            places=self.places(state),
        )


def slots_of_sprites(
    labels: Integer[Tensor, "T H W"],
    segments: Integer[Tensor, "T H W"],
    identity: Int64[Tensor, "T O"],
    sprites: int,
    components: int,
) -> Int64[Tensor, "N"]:
    """The component that covers each sprite best over the frames in which it is there, or -1 where
    the overlap is less than counts as tracked."""
    table = tables(labels[None], segments[None], identity.shape[1] + 1, components)[0].double()
    here = (identity.unsqueeze(-1) == torch.arange(sprites, device=identity.device)).double()
    shared = torch.einsum("ton,tok->nk", here, table[:, 1:])
    covered = torch.einsum("tn,tk->nk", here.sum(1), table.sum(1))
    overlap = shared / (shared.sum(1, keepdim=True) + covered - shared).clamp(min=1.0)
    most, component = overlap.max(1)
    return torch.where(most >= LEAST_IOU, component, -1)


def happened(video: Videos, names: list[str], step: int) -> str:
    """Which sprites of one video bounce off each other, come and go in a step; `names` are those
    of its sprites."""
    before, after = video.identity[step].tolist(), video.identity[step + 1].tolist()
    hits = video.collided[step + 1].triu(1).nonzero().tolist()
    pairs = (sorted((names[before[i]], names[before[j]])) for i, j in hits)
    bounces = [f"bounce of {one} and {other}" for one, other in pairs]
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    births = [f"birth of {names[new]}" for _, new in changed if new >= 0]
    deaths = [f"death of {names[old]}" for old, _ in changed if old >= 0]
    return ", ".join([*sorted(bounces), *sorted(births), *sorted(deaths)])
