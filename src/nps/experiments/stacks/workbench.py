"""Falling towers in the workbench: one picture is given, all frames after it are predicted.

The latent, of what the picture does not tell, is the likeliest one, 0. A slot is a feature map; its
place is what the model's box says of it. The rule layer reads another map, and what it returns is
added to the slot: of that, a way of one frame can be read, but no place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nps.errors import UserError
from nps.experiments.stacks.evaluation import errors
from nps.experiments.stacks.falls import Fall, fall_of
from nps.experiments.stacks.painting import paint, spread
from nps.experiments.stacks.play import KEYS, SHAPES, TowerWorld, action_names
from nps.experiments.stacks.task import StacksTask
from nps.experiments.stepping import KEPT, Frame, SteppedWorkbench, require_feature
from nps.inspect.edits import Edits
from nps.inspect.grids import to_bytes
from nps.inspect.playback import Playback
from nps.inspect.workbench import World
from nps.models.rpin import CELLS, LATENT, MASK, RPIN
from nps.worlds import stacks
from nps.worlds.stacks import BOX

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

PLACES = ("column", "row", "width", "height")
"""What a box says, in its order."""
WAYS = ("way across", "way down")
"""Of one frame; shown of what the rule layer reads, where slots are added to."""
SHOWN = 2
"""Of `PLACES`: all boxes have the same size."""


class StacksWorkbench(SteppedWorkbench[Fall, Tensor]):
    """Its state is the slots."""

    task: StacksTask
    model: RPIN
    fps = 8.0
    error_name = "1000 × squared distance"
    decodes = True
    actions = action_names([f"shape {m}" for m in range(SHAPES)])
    """Of play; nothing acts in the recorded episodes."""
    keys = KEYS

    def __init__(self, task: StacksTask, model: RPIN) -> None:
        super().__init__(task, model)
        self._fall = lru_cache(KEPT)(self._make_fall)
        self._told = lru_cache(1)(self._make_told)

    def count(self) -> int:
        return len(self.task.episodes["validation"].kind)

    def title(self, episode: int) -> str:
        return f"validation tower {episode}"

    # -- what is true -------------------------------------------------------------------------

    def episode(self, number: int, acted: Mapping[int, int]) -> Fall:
        return self._fall(number)

    def _make_fall(self, number: int) -> Fall:
        tower = self.task.episodes["validation"].at(slice(number, number + 1))
        shown = slice(self.task.config.test_frames + 1)
        over_time = ("position", "rotation", "touched", "grounded")
        return fall_of(tower._replace(**{k: getattr(tower, k)[:, shown] for k in over_time}))

    # -- what can be read of a slot -----------------------------------------------------------

    @property
    def feature_names(self) -> tuple[str, ...]:
        return PLACES[:SHOWN] + (WAYS if self.model.residual else ())

    @cached_property
    def _box(self) -> tuple[Float[ndarray, "4 D"], Float[ndarray, "4"]]:
        """From slots to boxes."""
        weight, bias = self.model.box.weight, self.model.box.bias
        return weight.detach().cpu().numpy(), bias.detach().cpu().numpy()

    @cached_property
    def _layer_box(self) -> tuple[Float[ndarray, "4 S"], Float[ndarray, "4"]]:
        """From what the rule layer reads to what it says of boxes, if nothing were cut off at 0."""
        weight, bias = self.model.predict.weight[..., 0, 0].detach(), self.model.predict.bias
        box = self.model.box.weight.detach().unflatten(1, (-1, CELLS * CELLS))
        back = torch.einsum("fdn,dc->fcn", box, weight).flatten(1).cpu().numpy()
        assert bias is not None
        shift = (box.sum(-1) @ bias.detach()).cpu().numpy()
        return back, shift if self.model.residual else shift + self._box[1]

    def features(self, slots: Float[ndarray, "*batch M D"]) -> Float[ndarray, "*batch M F"]:
        weight, bias = self._box
        return self._named(slots @ weight[:SHOWN].T + bias[:SHOWN], ways=False)

    def layer_features(self, before: Float[ndarray, "*batch M S"]) -> Float[ndarray, "*batch M F"]:
        weight, bias = self._layer_box
        read = before @ weight[:SHOWN].T + bias[:SHOWN]
        return self._named(read, ways=self.model.residual)

    def _named(self, read: Float[ndarray, "*batch 2"], *, ways: bool) -> Float[ndarray, "*batch F"]:
        """Places or ways; what is not known is NaN."""
        if not self.model.residual:
            return read
        unknown = np.full_like(read, np.nan)
        return np.concatenate([unknown, read] if ways else [read, unknown], -1)

    def direction(self, feature: str) -> Float[ndarray, "D"]:
        along: ndarray = np.linalg.pinv(self._box[0])[:, require_feature(self, feature) % SHOWN]
        return along

    def layer_direction(self, feature: str) -> Float[ndarray, "S"]:
        weight = self._layer_box[0]
        along: ndarray = np.linalg.pinv(weight)[:, require_feature(self, feature) % SHOWN]
        return along

    # -- what the model makes of it -----------------------------------------------------------

    def play(self, episode: int, edits: Edits = Edits()) -> Playback:  # noqa: B008, it is frozen
        if any(edit.step == 0 for edit in edits.placed):
            raise UserError("placed: at step 0 boxes are given, expected a later step")
        return super().play(episode, edits)

    def start(self, episode: Fall) -> Tensor:
        tower = episode.tower
        given = stacks.render(tower.shapes(0), tower.colour, pixels=self.task.config.pixels)
        boxes = stacks.boxes(tower.position[:, 0])
        return self.model.encode(self.model.backbone(given), boxes)[0]

    def advance(self, episode: Fall, state: Tensor, step: int) -> Tensor:
        told = self._told(max(step + 1, self.task.config.test_frames))
        return self.model.step(state.unsqueeze(0), told[:, step])[0]

    @torch.no_grad()
    def _make_told(self, steps: int) -> Float[Tensor, "1 T C"]:
        """What the likeliest latent says in each frame."""
        return self.model.told(torch.zeros(1, LATENT, device=self.task.device), steps)

    def slots_of(self, state: Tensor) -> Float[Tensor, "M C 7 7"]:
        return state

    def with_slots(self, state: Tensor, slots: Float[Tensor, "M C 7 7"]) -> Tensor:
        return slots

    def frame(self, episode: Fall, state: Tensor, step: int) -> Frame:
        return self.frames(episode, [state], step)[0]

    def frames(self, episode: Fall, states: Sequence[Tensor], first: int) -> list[Frame]:
        """All at once: the first layer of the masks is 13 MB, to be read once and not 30 times."""
        flat, some = torch.stack([*states]).flatten(2), slice(first, first + len(states))
        true, images = episode.centres[some], episode.images[some]
        boxes = self.model.box(flat).float()
        masks = self.model.mask(flat).float().sigmoid().unflatten(-1, (MASK, MASK))
        if not first:  # is given
            boxes[0] = torch.cat([true[0], torch.full_like(true[0], BOX)], -1)
            masks[0] = stacks.masks(episode.tower.shapes(0))[0]
        shares = spread(masks, boxes)
        drawn = paint(shares, episode.tower.colour[0])
        if not first:
            drawn[0] = images[0]
        seen = to_bytes(shares.cpu().numpy())
        centres = boxes[..., :2]
        away = torch.linalg.vector_norm(centres - true, dim=-1)
        places = centres.flip(-1).clamp(0.0, 1.0)
        parts = (images, drawn, flat, errors(centres, true), places, away)
        shown = zip(*(part.cpu().numpy() for part in parts), seen, strict=True)
        return [
            Frame(image, own, slots, float(error), masks=mask, places=place, away=far)
            for image, own, slots, error, place, far, mask in shown
        ]

    def world(self, seed: int) -> World:
        return TowerWorld(self, seed)
