"""The data of a world model, whatever the world.

Images need not be stored: those of a batch's episodes and times can be made on the device, inside a
captured step and under `vmap` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from nps.models.contrastive import Moments

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped


class Episodes(Protocol):
    """E episodes of up to T steps; the action at t leads from the observation at t to t + 1."""

    @property
    def action(self) -> Int[Tensor, "E T"] | Float[Tensor, "E T A"]:
        """Discrete actions, or vectors; only for episodes of equal length."""
        ...

    @property
    def lengths(self) -> Int[Tensor, "E"]:
        """Number of observations of each episode: T + 1 for a complete one."""
        ...

    def images(
        self, episode: Int[Tensor, "n"], time: Int[Tensor, "n"]
    ) -> Shaped[Tensor, "n H W C"]:
        """The images of some episodes at some times: bytes, or floats from 0 to 1."""
        ...

    def actions(
        self, episode: Int[Tensor, "n"], time: Int[Tensor, "n"]
    ) -> Int[Tensor, "n"] | Float[Tensor, "n A"]:
        """The actions of some episodes at some times."""
        ...

    def truth(self) -> Shaped[Tensor, "E T+1 numbers"]:
        """The true states as numbers: equal exactly for equal states."""
        ...


def steps(data: Episodes) -> int:
    """T, the number of steps of every episode."""
    return data.action.shape[1]


def transitions(data: Episodes) -> Moments:
    """The start of every transition, episode by episode."""
    count = data.lengths - 1
    episode = torch.arange(len(count), device=count.device).repeat_interleave(count)
    first = (count.cumsum(0) - count)[episode]
    return Moments(episode, torch.arange(len(episode), device=count.device) - first)


def numbered(images: Shaped[Tensor, "n ..."]) -> Int[Tensor, "n"]:
    """A number for each image, equal exactly for equal images; computed on the host."""
    known: dict[bytes, int] = {}
    rows = images.reshape(len(images), -1).cpu().numpy()
    return torch.tensor([known.setdefault(row.tobytes(), len(known)) for row in rows])
