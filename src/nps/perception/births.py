"""Slots that take up new objects: a free slot starts where something is seen that no slot explains.

Objects come into a video and leave it. A slot is free while it sees nothing. Before a frame is
read, free slots start anew, one after another, each at the clearest feature of the foreground that
no other slot covers, if there is one. All other slots go on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.perception.places import FASTEST, LITTLE, PLACE, SHARPNESS, PlacedReader, Read, Seen

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

APART = 2.0
"""Extents around a slot within which no other starts: at its rim, one would share its object."""
AT_FIRST = -1.0
"""The background's claim to features before training: anything may be an object."""
CLEAR = 0.5
"""Share of the foreground in a feature from which on a slot may start there."""


class Reseeded(NamedTuple):
    slots: Float[Tensor, "B M D"]
    born: Bool[Tensor, "B M"]
    """Which of them have just started."""


class BirthReader(PlacedReader):
    """A `PlacedReader` whose free slots take up objects that appear after the first frame.

    Arguments and shapes are those of `PlacedReader`. Nothing is read on the host, and shapes do not
    depend on who is born.
    """

    def __init__(self, slots: int, slot_dim: int, feature_dim: int, **options: Any) -> None:
        super().__init__(slots, slot_dim, feature_dim, **options)
        nn.init.constant_(self.background.bias, AT_FIRST)

    def begin(self, seen: Seen, slots: int, noise: Tensor | None = None) -> Float[Tensor, "B M D"]:
        """All are free at first; `noise` is for other readers."""
        batch, device = len(seen.background), seen.background.device
        nowhere = torch.zeros(batch, slots, 2 * PLACE, device=device)
        state = self.state.expand(batch, slots, -1)
        free = torch.ones(batch, slots, dtype=torch.bool, device=device)
        return self.reseed(seen, torch.cat([nowhere, state], -1), free, first=True).slots

    def read(self, seen: Seen, slots: Float[Tensor, "B M D"], *, first: bool) -> Read:
        with torch.autocast(slots.device.type, enabled=False):
            if first:
                slots = super().read(seen, slots, first=True).slots
            else:
                slots, born = self.reseed(seen, slots, ~self.sees(seen, slots))
                # A newborn's way to its object's centre says nothing of its velocity.
                gain = torch.where(born.unsqueeze(-1), 0.0, self.gain / FASTEST)
                for _ in range(self.iterations):
                    slots, _ = self._round(seen, slots, gain=gain)
            return Read(slots, self.sees(seen, slots))

    def sees(self, seen: Seen, slots: Float[Tensor, "B M D"]) -> Bool[Tensor, "B M"]:
        """Which slots see more than a little of the foreground. A slot that waits on the background
        sees something of that."""
        with torch.no_grad():
            foreground = (-seen.background.float()).sigmoid().unsqueeze(1)
            return (self.shares(seen, slots) * foreground).sum(-1) > LITTLE

    def reseed(
        self,
        seen: Seen,
        slots: Float[Tensor, "B M D"],
        free: Bool[Tensor, "B M"],
        *,
        first: bool = False,
    ) -> Reseeded:
        """Let free slots start where the foreground is not covered by others.

        In the first frame those that find no such place wait where the background is clearest. In
        training places are drawn at random, and one slot starts in any case: without any, the
        background would never learn to leave something to them.
        """
        with torch.no_grad():
            background = seen.background.float()
            others = self.uncovered(slots[..., :PLACE], APART)  # of the features, by slot
            scores = F.logsigmoid(-background)
            scores = scores + torch.where(free.unsqueeze(-1), 0.0, others).sum(1)
            around = self.uncovered(self.grid, APART)
            aside = self.grid[background.argmax(-1)]
            places, born = [], []
            for m in range(slots.shape[1]):
                taken = (SHARPNESS * scores + self._noise(scores)).argmax(-1)
                clear = scores.gather(1, taken.unsqueeze(-1)).squeeze(-1) > math.log(CLEAR)
                if first and m == 0 and self.training:
                    clear = torch.ones_like(clear)
                born.append(free[:, m] & clear)
                place = self.grid[taken]
                if first:
                    place = torch.where(clear.unsqueeze(-1), place, aside)
                places.append(place)
                scores = scores + torch.where(born[-1].unsqueeze(-1), around[taken], 0.0)
            place, new = torch.stack(places, 1), torch.stack(born, 1)
            new = free if first else new
        state = self.state.expand(*place.shape[:2], -1)
        start = torch.cat([place, torch.zeros_like(place), state], -1)
        return Reseeded(torch.where(new.unsqueeze(-1), start, slots), new)

    def _noise(self, scores: Float[Tensor, "B n"]) -> Tensor | float:
        """Gumbel noise in training."""
        if not self.training:
            return 0.0
        uniform = torch.rand_like(scores).clamp(1e-6, 1 - 1e-6)
        return -uniform.log().neg().log()
