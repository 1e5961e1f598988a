"""Split the user's episodes: whole ones for training, segments of held-out ones for roll-outs.

Whole episodes are held out, so that training and test share no frame. The held-out ones are cut
into consecutive segments of equal length, each a roll-out of its own in the ranking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.experiments.custom.config import Config
from nps.experiments.world_models.config import ENOUGH, HORIZONS
from nps.experiments.world_models.episodes import numbered
from nps.training import rng
from nps.worlds.custom import RecordedEpisodes
from nps.worlds.custom.check import require_change
from nps.worlds.custom.episodes import stack_frames

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped, UInt8

LEAST = 3
"""Least number of episodes: one each for training, validation and testing."""
MOST = {"validation": 1_000, "test": 10_000}
"""Most segments that are rolled out; if there are more, they are subsampled evenly."""
TEST_STEPS = "test steps"
"""The set of roll-outs of unequal length that hold every step of the test episodes."""
MOST_STEPS = 5_000
"""Most steps of these, since each prediction is compared with every distinct observation; but
always enough roll-outs for a verdict."""


@dataclass(frozen=True)
class Segments:
    """E segments of consecutive frames, each inside one episode."""

    obs: UInt8[Tensor, "N H W C"] | Float[Tensor, "N H W C"]
    """All frames, shared by all sets."""
    all_actions: Int[Tensor, "N"] | Float[Tensor, "N A"]
    """The action at each frame, shared too."""
    first: Int[Tensor, "N"]
    """The first frame of each frame's episode, shared too."""
    frames: int
    """Frames of an observation."""
    start: Int[Tensor, "E"]
    """The first frame of each segment."""
    lengths: Int[Tensor, "E"]
    """Number of frames of each segment."""

    @cached_property
    def action(self) -> Int[Tensor, "E T"] | Float[Tensor, "E T A"]:
        """The actions of segments of equal length."""
        times = torch.arange(int(self.lengths[0]) - 1, device=self.start.device)
        return self.all_actions[self.start[:, None] + times]

    def images(
        self, episode: Int[Tensor, "n"], time: Int[Tensor, "n"]
    ) -> Shaped[Tensor, "n H W frames*C"]:
        return self._observed(self.start[episode] + time)

    def actions(
        self, episode: Int[Tensor, "n"], time: Int[Tensor, "n"]
    ) -> Int[Tensor, "n"] | Float[Tensor, "n A"]:
        return self.all_actions[self.start[episode] + time]

    def truth(self) -> Int[Tensor, "E T+1 1"]:
        """The numbers of the observations of segments of equal length."""
        times = torch.arange(self.action.shape[1] + 1, device=self.start.device)
        observed = self._observed((self.start[:, None] + times).flatten())
        return numbered(observed).view(len(self.start), -1, 1).to(self.start.device)

    def _observed(self, at: Int[Tensor, "n"]) -> Shaped[Tensor, "n H W frames*C"]:
        """Frames before a segment are seen where its episode has them: only its past is known."""
        return stack_frames(self.obs, self.first, at, self.frames)


Rows = dict[str, tuple["Int[Tensor, 'E']", "Int[Tensor, 'E']"]]
"""set -> the first frame and the number of frames of each of its segments."""


def split(data: RecordedEpisodes, config: Config, device: torch.device) -> Mapping[str, Segments]:
    """Whole episodes for training, and segments of others for validation and test.

    The test episodes are there twice: "test" has segments of equal length, `TEST_STEPS` every step.
    """
    starts, sizes = _bounds(data)
    parts = held_out(len(sizes), config.held_out, config.data_seed)
    every = torch.arange(len(sizes))
    train = every[~torch.isin(every, torch.cat([*parts.values()]))]
    rows = {"train": (starts[train], sizes[train])} | _roll_outs(data, parts, config.test_steps)
    rows[TEST_STEPS] = _every_step(data, parts["test"], config.test_steps)
    return _segments_of(data, rows, config.frames, device)


def all_segments(
    data: RecordedEpisodes, config: Config, device: torch.device
) -> Mapping[str, Segments]:
    """All episodes as test set: "test" and `TEST_STEPS`."""
    every = torch.arange(len(_bounds(data)[0]))
    rows = _roll_outs(data, {"test": every}, config.test_steps)
    rows[TEST_STEPS] = _every_step(data, every, config.test_steps)
    return _segments_of(data, rows, config.frames, device)


def _segments_of(
    data: RecordedEpisodes, rows: Rows, frames: int, device: torch.device
) -> dict[str, Segments]:
    require_change(data.obs)
    shared = data.obs.to(device), data.action.to(device), data.first.to(device), frames
    return {
        name: Segments(*shared, at.to(device), lengths.to(device))
        for name, (at, lengths) in rows.items()
    }


def _bounds(data: RecordedEpisodes) -> tuple[Int[Tensor, "E"], Int[Tensor, "E"]]:
    """The first frame of each episode, and its number of frames."""
    sizes = torch.bincount(data.episode)
    return sizes.cumsum(0) - sizes, sizes


def held_out(count: int, share: float, seed: int) -> dict[str, Int[Tensor, "n"]]:
    """Of every round(1 / share) consecutive episodes, a random one to test and one to validate.

    The use of an episode does not depend on later ones: a file may grow, and no training episode
    ever becomes a test episode. So the first two are drawn among the first three episodes, the
    least that a file has.
    """
    if count < LEAST:
        raise ValueError(
            f"got {count} episode{'s' if count > 1 else ''}, expected at least {LEAST}"
        )
    period = round(1 / share)
    drawn = []
    for start in range(0, count, period):
        size = period if start else LEAST
        draw = rng.generator("cpu", seed, f"split {start}")
        drawn.append(start + torch.randperm(size, generator=draw)[:2])
    test, validation = (part[part < count] for part in torch.stack(drawn, 1))
    return {"test": test, "validation": validation}


def _roll_outs(data: RecordedEpisodes, parts: Mapping[str, Int[Tensor, "n"]], most: int) -> Rows:
    """Segments of some episodes, as long as possible (at most `most` steps) with two per set."""
    starts = _bounds(data)[0]
    for steps in (most, *(step for step in reversed(HORIZONS) if step < most)):
        cut = {name: _segment_starts(data, starts, which, steps) for name, which in parts.items()}
        if all(len(at) > 1 for at in cut.values()):
            some = {name: _some(at, MOST[name]) for name, at in cut.items()}
            return {name: (at, torch.full_like(at, steps + 1)) for name, at in some.items()}
    names = " or ".join(name for name in parts if len(cut[name]) < 2)
    raise ValueError(f"got one transition for {names}, expected more: record longer episodes")


def _every_step(
    data: RecordedEpisodes, which: Int[Tensor, "n"], most: int
) -> tuple[Int[Tensor, "E"], Int[Tensor, "E"]]:
    """Consecutive roll-outs of `most` steps; the last of an episode has the steps that are left."""
    starts, sizes = (bound[which] for bound in _bounds(data))
    steps = sizes - 1
    count = (steps + most - 1) // most
    episode = torch.arange(len(which)).repeat_interleave(count)
    offset = most * (torch.arange(len(episode)) - (count.cumsum(0) - count)[episode])
    frames = (steps[episode] - offset).clamp(max=most) + 1
    some = _some(torch.arange(len(episode)), max(ENOUGH, MOST_STEPS // most))
    return (starts[episode] + offset)[some], frames[some]


def _segment_starts(
    data: RecordedEpisodes, starts: Int[Tensor, "E"], which: Int[Tensor, "n"], steps: int
) -> Int[Tensor, "P"]:
    """The first frames of consecutive segments of some episodes."""
    if steps >= int(torch.bincount(data.episode).max()):
        return starts[:0]
    first = data.windows(steps)[:, 0]
    episode = data.episode[first]
    follows = (first - starts[episode]) % steps == 0
    return first[follows & torch.isin(episode, which)]


def _some(start: Int[Tensor, "P"], most: int) -> Int[Tensor, "n"]:
    """At most `most` of them, evenly spaced."""
    count = min(most, len(start))
    return start[torch.arange(count) * len(start) // count]
