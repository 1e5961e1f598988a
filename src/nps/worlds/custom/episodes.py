"""Recorded episodes in memory, laid out as a world model reads them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.errors import UserError

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped, UInt8


class RecordedEpisodes(NamedTuple):
    """All time steps, episode by episode, as `WorldModel.encode` and `predict` take them."""

    obs: UInt8[Tensor, "N H W C"] | Float[Tensor, "N H W C"]
    """Images, as bytes or as numbers from 0 to 1; with stacked frames, the newest comes first."""
    action: Int[Tensor, "N"] | Float[Tensor, "N A"]
    """Discrete or continuous; `action[n]` leads from `obs[n]` to `obs[n + 1]`."""
    episode: Int[Tensor, "N"]
    """Index of the episode of each time step, from 0."""

    @property
    def discrete(self) -> bool:
        return self.action.dim() == 1

    @property
    def action_size(self) -> int:
        """Number of discrete actions (the largest plus one), or size of continuous ones.

        The last action of an episode does not count, since nothing follows it.
        """
        if not self.discrete:
            return self.action.shape[1]
        return int(self.action[:-1][self.episode[1:] == self.episode[:-1]].max()) + 1

    @property
    def first(self) -> Int[Tensor, "N"]:
        """For each time step, the first one of its episode."""
        sizes = torch.bincount(self.episode)
        return (sizes.cumsum(0) - sizes)[self.episode]

    def windows(self, steps: int = 1) -> Int[Tensor, "P steps+1"]:
        """Indices of the time steps n, ..., n + steps, for every n that has these in its episode.

        With one step, these are the transitions.
        """
        longest = int(torch.bincount(self.episode).max()) - 1
        if not 1 <= steps <= longest:
            raise UserError(
                f"steps: got {steps}, expected 1 to {longest}, the length of the longest episode"
            )
        inside = self.episode[:-steps] == self.episode[steps:]
        return torch.nonzero(inside) + torch.arange(steps + 1, device=inside.device)

    def stacked(self, frames: int) -> RecordedEpisodes:
        """The same episodes with observations of several frames each."""
        every = torch.arange(len(self.obs), device=self.obs.device)
        return self._replace(obs=stack_frames(self.obs, self.first, every, frames))

    def fingerprint(self) -> str:
        """A hash that is equal for equal episodes, however they are stored."""
        digest = hashlib.sha256()
        # Channels first, as runs have stored it from the beginning.
        for part in (self.obs.permute(0, 3, 1, 2), self.action, self.episode):
            digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
            digest.update(part.cpu().contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def to(self, device: torch.device | str) -> RecordedEpisodes:
        return RecordedEpisodes(*(part.to(device) for part in self))


def stack_frames(
    obs: Shaped[Tensor, "N H W C"],
    first: Int[Tensor, "N"],
    at: Int[Tensor, "n"],
    frames: int,
) -> Shaped[Tensor, "n H W frames*C"]:
    """Observations at some time steps: the frame there and those before it, newest first.

    Before the start of an episode its first frame is repeated.

    Args:
        obs: every frame.
        first: for each frame, the first one of its episode.
        at: the time steps.
        frames: number of frames in an observation.
    """
    if frames == 1:
        return obs[at]
    begin = first[at]
    return torch.cat([obs[(at - back).maximum(begin)] for back in range(frames)], -1)
