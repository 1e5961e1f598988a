"""OP3 in the workbench.

A slot here is what the rules read: after its inertia, before the interaction. Between two frames
that is the only place where rules add to a slot, so what is read, set by hand and added are the
same numbers. Drawn alone, a slot is as it would be in the next frame if nothing interacted.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nps.experiments.sprites.watching import image
from nps.experiments.sprites.workbench import SpritesWorkbench, State, Video
from nps.experiments.stepping import require_feature
from nps.experiments.video_slots import as_bytes, middles
from nps.models.op3 import OP3
from nps.models.op3_state import State as Latents

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8
    from numpy import ndarray


class OP3Workbench(SpritesWorkbench):
    model: OP3
    described = 12

    # -- what can be read of a slot -----------------------------------------------------------

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(2 * self.model.latent_dim))

    def features(self, slots: Float[ndarray, "*batch M D"]) -> Float[ndarray, "*batch M F"]:
        return slots

    def direction(self, feature: str) -> Float[ndarray, "D"]:
        along: ndarray = np.eye(2 * self.model.latent_dim)[require_feature(self, feature)]
        return along

    @torch.no_grad()
    def picture(self, slots: Float[ndarray, "M D"], slot: int) -> UInt8[ndarray, "H W 3"]:
        """One slot in the next frame, where no other covers it."""
        moved = torch.from_numpy(slots).to(self.task.device, torch.float32).unsqueeze(0)
        fixed, mean, _ = self.model.dynamics.expect(moved)
        drawn = self.model.draw_slots(torch.cat([fixed, mean], -1), mean.dtype)
        return as_bytes((drawn.masks * drawn.colours)[0, slot])

    def masks(self, state: State) -> Float[Tensor, "K H W"]:
        return self.model.draw(state.own).masks[0, :, 0]

    def places(self, state: State) -> Float[ndarray, "M 2"]:
        return middles(state.masks.cpu().numpy())

    # -- what the model makes of it -----------------------------------------------------------

    @cached_property
    def noise(self) -> Float[Tensor, "B K R"]:
        """Where slots start, as in validation."""
        return torch.cat([part.noise for part in self.task.batches("validation")])

    def given(self, frames: Float[Tensor, "S 3 H W"]) -> list[Tensor]:
        return list(frames.split(1))

    def start(self, episode: Video) -> State:
        noise = self.noise[episode.number].unsqueeze(0)
        latents = self.model.begin(1, self.task.config.slots, noise)
        count = self.task.config.first_refinements
        return self.shown(self.refined(latents, episode.given[0], count))

    def advance(self, episode: Video, state: State, step: int) -> State:
        latents, _ = self.model.go_on(state.own, state.slots.unsqueeze(0))
        expected = self.shown(latents)
        if step + 1 >= len(episode.given):
            return expected
        count = self.task.config.refinements
        latents = self.refined(latents, episode.given[step + 1], count)
        return expected._replace(slots=self.moved(latents), own=latents)

    def shown(self, latents: Latents) -> State:
        """With what these draw."""
        drawn = self.model.draw(latents)
        return State(self.moved(latents), image(drawn)[0], drawn.masks[0, :, 0], latents)

    def moved(self, latents: Latents) -> Float[Tensor, "M D"]:
        return self.model.dynamics.alone(latents.slots)[0]

    def refined(self, latents: Latents, frame: Float[Tensor, "1 3 H W"], count: int) -> Latents:
        for _ in range(count):
            latents = self.model.refine_without_learning(latents, frame)
        return latents
