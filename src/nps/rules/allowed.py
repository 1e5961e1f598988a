"""Which slots and rules take part in a call: masked slots and disabled rules do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool


class Allowed(NamedTuple):
    """What may be chosen; None stands for everything."""

    slots: Bool[Tensor, "*batch M"] | None = None
    rules: Bool[Tensor, "N"] | None = None

    def pairs(self) -> Bool[Tensor, "*#batch #M N"] | None:
        """Whether rule i may fire on slot m."""
        if self.slots is None:
            return self.rules
        on_slots = self.slots.unsqueeze(-1)
        return on_slots if self.rules is None else on_slots & self.rules

    def contexts(
        self, m: int, self_context: bool, device: torch.device
    ) -> Bool[Tensor, "*#batch #M M"] | None:
        """Whether slot j may be the context of slot m."""
        slots = None if self.slots is None else self.slots.unsqueeze(-2)
        if self_context:
            return slots
        others = ~torch.eye(m, dtype=torch.bool, device=device)
        return others if slots is None else others & slots
