"""What is truly there in an episode: its images and events, under actions changed by hand.

Recorded episodes know what their own actions did, and nothing of others. A world that can be
simulated (`nps.experiments.blocks.workbench`) says what would have happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nps.experiments.world_models.episodes import Episodes
from nps.inspect.edits import Edits
from nps.inspect.grids import to_bytes
from nps.inspect.rollouts import rgb

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped, UInt8
    from numpy import ndarray


@dataclass(frozen=True)
class Scene:
    """The truth of one episode of T steps."""

    images: Shaped[Tensor, "T+1 H W C"]
    actions: Shaped[Tensor, "T ..."]
    events: tuple[str, ...] = ()
    known: int | None = None
    """Frames whose truth is known; None for all."""

    def like(self, slots: Float[Tensor, "n M D"]) -> Shaped[Tensor, "p H W C"]:
        """Images that some slots may show, besides the pool's and the true ones."""
        return self.images[:0]


def recorded_scene(data: Episodes, episode: int, edits: Edits) -> Scene:
    """An episode as it was recorded; from the first changed action on, its truth is not known."""
    count = int(data.lengths[episode])
    time = torch.arange(count, device=data.lengths.device)
    which = torch.full_like(time, episode)
    actions = acted(data.actions(which[:-1], time[:-1]), edits)
    first = min((edit.step for edit in edits.acted), default=None)
    events = ("",) * len(actions)
    return Scene(data.images(which, time), actions, events, None if first is None else first + 1)


def acted(actions: Shaped[Tensor, "T ..."], edits: Edits) -> Tensor:
    """The actions, with those that are changed by hand."""
    if not edits.acted:
        return actions
    actions = actions.clone()
    for edit in edits.acted:
        actions[edit.step] = edit.action
    return actions


def frames(images: Shaped[Tensor, "n H W C"]) -> UInt8[ndarray, "n H W 3"]:
    """As bytes; of stacked frames the newest."""
    return to_bytes(np.asarray(rgb(images)))
