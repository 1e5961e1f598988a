"""The tracker in the workbench: its slots have a place and a velocity.

A slot that sees nothing has no place and draws nothing. In frames without input those that were
present last go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nps.experiments.sprites.watching import as_bytes as as_frames
from nps.experiments.sprites.workbench import SpritesWorkbench, State, Video
from nps.experiments.stepping import require_feature
from nps.experiments.video_slots import READABLE, as_bytes, own_places, readable, rescaled, unit
from nps.models.tracker import Tracker

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, UInt8
    from numpy import ndarray


class TrackerWorkbench(SpritesWorkbench):
    model: Tracker

    # -- what can be read of a slot -----------------------------------------------------------

    @property
    def feature_names(self) -> tuple[str, ...]:
        return READABLE

    def features(self, slots: Float[ndarray, "*batch M D"]) -> Float[ndarray, "*batch M F"]:
        return readable(slots)

    def direction(self, feature: str) -> Float[ndarray, "D"]:
        return unit(require_feature(self, feature), self.model.reader.slot_dim, placed=True)

    def layer_slots(self, before: Float[ndarray, "*batch M D"]) -> Float[ndarray, "*batch M D"]:
        """The layer reads places and velocities in radii."""
        return rescaled(before, 1.0 / self.model.radius)

    def layer_direction(self, feature: str) -> Float[ndarray, "D"]:
        return rescaled(self.direction(feature), self.model.radius)

    @torch.no_grad()
    def picture(self, slots: Float[ndarray, "M D"], slot: int) -> UInt8[ndarray, "H W 3"]:
        """One slot before the background."""
        own = torch.from_numpy(slots[slot]).to(self.task.device, torch.float32).view(1, 1, -1)
        there = torch.ones(1, 1, dtype=torch.bool, device=own.device)
        return as_bytes(self.model.decoder(own, there).images[0])

    def masks(self, state: State) -> Float[Tensor, "K H W"]:
        return self.shown(state.slots.unsqueeze(0), state.own).masks

    def places(self, state: State) -> Float[ndarray, "M 2"]:
        there: ndarray = state.own[0].cpu().numpy()
        return np.where(there[:, None], own_places(state.slots.cpu().numpy()), np.nan)

    # -- what the model makes of it -----------------------------------------------------------

    def given(self, frames: Float[Tensor, "S 3 H W"]) -> list[Any]:
        return self.model.reader.look_at(self.model.encoder(as_frames(frames)).unsqueeze(1))

    def start(self, episode: Video) -> State:
        view, reader = episode.given[0], self.model.reader
        slots, present = reader.read(view, reader.begin(view, reader.slots), first=True)
        assert present is not None  # slots with places know
        return self.shown(slots, present)

    def advance(self, episode: Video, state: State, step: int) -> State:
        new, _ = self.model.advance(state.slots.unsqueeze(0), state.own)
        expected = self.shown(new, state.own)
        if step + 1 >= len(episode.given):
            return expected
        slots, present = self.model.reader.read(episode.given[step + 1], new, first=False)
        return expected._replace(slots=slots[0], own=present)

    def shown(self, slots: Float[Tensor, "1 M D"], present: Bool[Tensor, "1 M"]) -> State:
        """With what these draw."""
        drawn = self.model.decoder(slots, present)
        return State(slots[0], drawn.images[0], drawn.masks[0], present)
