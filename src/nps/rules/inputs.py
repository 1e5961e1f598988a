"""What a rule layer reads, checked: its slots, and the features that selection sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.rules.check import require_dtype, require_finite, require_slots, require_type
from nps.rules.construction import ConfiguredLayer
from nps.rules.projection import exact
from nps.rules.slots import unsqueeze_right

if TYPE_CHECKING:
    from jaxtyping import Float

Selection = Tensor | Callable[[Tensor], Tensor]


class CheckedInput(ConfiguredLayer):
    """A configured layer that checks what it is given."""

    def _checked(self, slots: Tensor, slot_mask: Tensor | None) -> Tensor:
        """The slots, with zeros in the masked ones, which may hold anything."""
        events = self.rules.event_dims
        require_slots(slots, slot_mask, self.slot_dim, events)
        require_dtype("slots", slots, self.rules.embedding.dtype)
        if slot_mask is not None:
            slots = torch.where(unsqueeze_right(slot_mask, events), slots, 0.0)
        require_finite("slots", slots)
        return slots

    def _features(
        self, slots: Tensor, selection: Selection | None, slot_mask: Tensor | None
    ) -> Float[Tensor, "*batch M F"]:
        """What selection and binding see."""
        events = self.rules.event_dims
        if selection is None:
            features = slots if events == 1 else slots.mean((-2, -1))
        else:
            features = selection(slots) if callable(selection) else selection
            require_type("selection", features, Tensor, "a tensor or a function that returns one")
        expected = (*slots.shape[:-events], self.selection_dim)
        if tuple(features.shape) != expected:
            raise ValueError(
                f"selection: got shape {tuple(features.shape)}, expected {expected} "
                f"(selection_dim = {self.selection_dim})"
            )
        if selection is not None:
            if slot_mask is not None:
                features = torch.where(slot_mask.unsqueeze(-1), features, 0.0)
            require_dtype("selection", features, self.rules.embedding.dtype)
            require_finite("selection", features)
        return exact(features)
