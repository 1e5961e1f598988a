"""The user's episodes, split and cut: whole ones to train with, stretches of others to roll out.

Whole episodes are held out, so that no frame is seen on both sides. Those are cut into stretches of
equal length that follow one another, each a roll-out of its own in the ranking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.experiments.custom.config import Config
from nps.experiments.world_models.episodes import numbered
from nps.experiments.world_models.task import HORIZONS
from nps.training import rng
from nps.worlds.custom import Episodes

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped, UInt8

LEAST = 3
"""Episodes, of which one is to train, one to validate and one to test with."""
MOST = {"validation": 1_000, "test": 10_000}
"""Stretches that are rolled out; of more, some at even distances."""


@dataclass(frozen=True)
class Stretches:
    """E stretches of successive frames, each inside an episode."""

    obs: UInt8[Tensor, "N H W C"] | Float[Tensor, "N H W C"]
    """All frames; they are shared by all sets."""
    done: Int[Tensor, "N"] | Float[Tensor, "N A"]
    """The action at each, shared too."""
    start: Int[Tensor, "E"]
    """The first frame of each stretch."""
    lengths: Int[Tensor, "E"]
    """Its frames."""

    @cached_property
    def action(self) -> Int[Tensor, "E T"] | Float[Tensor, "E T A"]:
        """Of stretches that are all equally long."""
        times = torch.arange(int(self.lengths[0]) - 1, device=self.start.device)
        return self.done[self.start[:, None] + times]

    def images(
        self, episode: Int[Tensor, "n"], time: Int[Tensor, "n"]
    ) -> Shaped[Tensor, "n H W C"]:
        return self.obs[self.start[episode] + time]

    def actions(
        self, episode: Int[Tensor, "n"], time: Int[Tensor, "n"]
    ) -> Int[Tensor, "n"] | Float[Tensor, "n A"]:
        return self.done[self.start[episode] + time]

    def truth(self) -> Int[Tensor, "E T+1 1"]:
        """The numbers of the images; stretches are all equally long."""
        times = torch.arange(self.action.shape[1] + 1, device=self.start.device)
        frames = (self.start[:, None] + times).flatten()
        return numbered(self.obs[frames]).view(len(self.start), -1, 1).to(self.start.device)


Rows = dict[str, tuple["Int[Tensor, 'E']", "Int[Tensor, 'E']"]]
"""set -> the first frame of each of its stretches, and how many frames it has."""


def split(data: Episodes, config: Config, device: torch.device) -> Mapping[str, Stretches]:
    """Whole episodes to train with, and stretches of others for validation and test."""
    starts, sizes = _bounds(data)
    parts = held_out(len(sizes), config.held_out, config.data_seed)
    every = torch.arange(len(sizes))
    train = every[~torch.isin(every, torch.cat([*parts.values()]))]
    rows = {"train": (starts[train], sizes[train])} | _roll_outs(data, parts, config.test_steps)
    return _stretches_of(data, rows, device)


def whole(data: Episodes, config: Config, device: torch.device) -> Stretches:
    """Stretches of all episodes, to test on."""
    every = {"test": torch.arange(len(_bounds(data)[0]))}
    return _stretches_of(data, _roll_outs(data, every, config.test_steps), device)["test"]


def _stretches_of(data: Episodes, rows: Rows, device: torch.device) -> dict[str, Stretches]:
    _require_images(data.obs)
    obs, action = data.obs.permute(0, 2, 3, 1).contiguous().to(device), data.action.to(device)
    return {
        name: Stretches(obs, action, at.to(device), frames.to(device))
        for name, (at, frames) in rows.items()
    }


def _bounds(data: Episodes) -> tuple[Int[Tensor, "E"], Int[Tensor, "E"]]:
    """The first frame of each episode, and how many it has."""
    sizes = torch.bincount(data.episode)
    return sizes.cumsum(0) - sizes, sizes


def held_out(count: int, share: float, seed: int) -> dict[str, Int[Tensor, "n"]]:
    """Of every round(1 / share) successive episodes one to test and one to validate with, by lot.

    What an episode is for does not depend on those that are recorded after it: a file may grow, and
    no episode that was trained on comes to test the model. So the first two are drawn among the
    first three episodes, with which a file may begin.
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


def _roll_outs(data: Episodes, parts: Mapping[str, Int[Tensor, "n"]], most: int) -> Rows:
    """Stretches of some episodes, of the most steps with which each set has two to rank."""
    starts = _bounds(data)[0]
    for steps in (most, *(step for step in reversed(HORIZONS) if step < most)):
        cut = {name: _stretches(data, starts, which, steps) for name, which in parts.items()}
        if all(len(at) > 1 for at in cut.values()):
            some = {name: _some(at, MOST[name]) for name, at in cut.items()}
            return {name: (at, torch.full_like(at, steps + 1)) for name, at in some.items()}
    names = " or ".join(name for name in parts if len(cut[name]) < 2)
    raise ValueError(f"got one transition for {names}, expected more: record longer episodes")


def _stretches(
    data: Episodes, starts: Int[Tensor, "E"], which: Int[Tensor, "n"], steps: int
) -> Int[Tensor, "P"]:
    """Where stretches of some episodes begin, each where the one before it ends."""
    if steps >= int(torch.bincount(data.episode).max()):
        return starts[:0]
    first = data.windows(steps)[:, 0]
    episode = data.episode[first]
    follows = (first - starts[episode]) % steps == 0
    return first[follows & torch.isin(episode, which)]


def _some(start: Int[Tensor, "P"], most: int) -> Int[Tensor, "n"]:
    """At most so many of them, at even distances."""
    count = min(most, len(start))
    return start[torch.arange(count) * len(start) // count]


def _require_images(obs: Tensor) -> None:
    low, high = (float(x) for x in obs.aminmax()) if obs.is_floating_point() else (0.0, 1.0)
    if low < 0 or high > 1:
        raise ValueError(f"obs: got numbers from {low:g} to {high:g}, expected 0 to 1, or bytes")
