"""What `nps view` shows of a world model, whatever the world and whatever its transition.

Slots are read by linear probes (`probes.py`): of what a world knows of its objects, else of the
place in the picture that a slot looks at. Predictions are drawn as the nearest image
(`nearest.py`), steps are predicted one by one (`unrolling.py`), and the episodes are those of the
validation set.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nps.errors import UserError
from nps.experiments.world_models.nearest import AT_ONCE, Pool
from nps.experiments.world_models.places import if_any, told_apart
from nps.experiments.world_models.probes import Probe, SlotProbes, said
from nps.experiments.world_models.scenes import Scene, frames, recorded_scene
from nps.experiments.world_models.unrolling import Unrolled, unroll
from nps.inspect.edits import Edits
from nps.inspect.grids import to_bytes
from nps.inspect.intervene import require_steps
from nps.inspect.playback import Playback
from nps.inspect.workbench import Workbench, require_index
from nps.models.world_model import WorldModel
from nps.perception.extractors import contrast

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped, UInt8
    from numpy import ndarray

PROBED = 500
"""Training images on which probes are fitted and judged."""
KEPT = 16
"""Episodes without edits that are kept in memory."""
FAINT = 0.02
"""Difference within a map below which it shows no place."""
PLACE = ("row", "column")


class Truth(NamedTuple):
    """What does not depend on what the model predicts."""

    scene: Scene
    maps: Float[Tensor, "T+1 M h w"]
    """Where in each true image a slot looks."""


class WorldModelWorkbench(Workbench):
    """Episodes of a `WorldModel`; each world adds its actions, its events and what it knows."""

    error_name = "squared distance to the true encoding"
    model: WorldModel

    def __init__(self, task: Any, model: WorldModel) -> None:
        super().__init__(task, model)
        self.pool = Pool(model, task.sets["train"])
        self._unedited = lru_cache(KEPT)(self._compute_unedited)

    @cached_property
    def encoder(self) -> str:  # type: ignore[override]
        """Equal for models whose encoders have the same weights."""
        found = sha256()
        for name, tensor in self.model.encoder.state_dict().items():
            found.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    # -- episodes -----------------------------------------------------------------------------

    def count(self) -> int:
        return len(self.task.sets["validation"].lengths)

    def title(self, episode: int) -> str:
        return f"validation episode {episode}"

    @property
    def slot_names(self) -> tuple[str, ...]:
        return tuple(f"slot {m}" for m in range(self.model.actions.slots))

    @torch.no_grad()
    def play(self, episode: int, edits: Edits = Edits()) -> Playback:  # noqa: B008, it is frozen
        require_index("episode", episode, self.count())
        truth, unrolled = self._unedited(episode)
        if edits:
            slots, actions = self.model.actions.slots, len(self.actions)
            require_steps(edits, len(truth.scene.actions), slots, actions)
            if edits.acted or edits.placed:
                truth = self._truth(self.scene(episode, edits))
            unrolled = unroll(self, unrolled.slots[0], truth.scene.actions, edits, unrolled)
        return self._playback(truth, unrolled)

    def scene(self, episode: int, edits: Edits) -> Scene:
        """The truth of an episode, under actions that are changed by hand."""
        return recorded_scene(self.task.sets["validation"], episode, edits)

    def _compute_unedited(self, episode: int) -> tuple[Truth, Unrolled]:
        truth = self._truth(self.scene(episode, Edits()))
        given = self.pool.encode(truth.scene.images[:1])[0]
        return truth, unroll(self, given, truth.scene.actions)

    def _truth(self, scene: Scene) -> Truth:
        return Truth(scene, self.maps(scene.images))

    def _playback(self, truth: Truth, unrolled: Unrolled) -> Playback:
        scene, slots = truth.scene, unrolled.slots.cpu().numpy()
        drawn = self.pool.draw(unrolled.slots, scene)
        error = (unrolled.slots - drawn.true_slots).square().sum((-2, -1)).cpu().numpy()
        if scene.known is not None:
            error[scene.known :] = np.nan
        right = (drawn.images == scene.images).flatten(1).all(1).cpu().numpy()
        discrete = not scene.actions.is_floating_point()
        return Playback(
            true=frames(scene.images),
            predicted=frames(drawn.images),
            right=right if scene.known is None else None,
            error=error,
            error_name=self.error_name,
            slots=slots,
            features=self.features(slots),
            feature_names=self.feature_names,
            slot_names=self.slot_names,
            masks=as_masks(truth.maps),
            places=if_any(self.places(slots, truth.maps)),
            actions=scene.actions.cpu().numpy() if discrete else None,
            events=scene.events,
            record=unrolled.record,
        )

    # -- what can be read of a slot -----------------------------------------------------------

    @cached_property
    @torch.no_grad()
    def probe(self) -> Probe | SlotProbes | None:
        """One for all slots, else one for each slot; None if these are not good enough either."""
        episode, time, images, slots = (part[:PROBED] for part in self.pool.trained)
        values = self.values(episode, time, images)
        data = PLACE, slots.cpu().numpy(), values
        shared = Probe.fit(*data)
        found = shared if shared.usable else SlotProbes.fit(*data)
        return found if found.usable else None

    def values(
        self, episode: Tensor, time: Tensor, images: Shaped[Tensor, "n H W C"]
    ) -> Float[ndarray, "n M 2"]:
        """Row and column that each slot shows at some moments of training, NaN for none."""
        return centres(self.maps(images))

    @property
    def feature_names(self) -> tuple[str, ...]:
        if self.probe is not None:
            return self.probe.names
        return tuple(f"z{d}" for d in range(self.task.config.slot_dim))

    @property
    def reading(self) -> str:
        return "" if self.probe is None else said(self.probe)

    def features(self, slots: Float[ndarray, "*batch M D"]) -> Float[ndarray, "*batch M F"]:
        found = slots if self.probe is None else self.probe.read(slots)
        return np.asarray(found, np.float32)

    def direction(self, feature: str) -> Float[ndarray, "D"]:
        if feature not in self.feature_names:
            known = ", ".join(self.feature_names)
            raise UserError(f"feature: got {feature!r}, expected one of {known}")
        if self.probe is not None:
            return self.probe.direction(feature).astype(np.float32)
        return np.array([name == feature for name in self.feature_names], np.float32)

    def slot_direction(self, slot: int, feature: str) -> Float[ndarray, "D"]:
        if self.probe is None or feature not in self.feature_names:
            return self.direction(feature)
        return self.probe.slot_direction(slot, feature).astype(np.float32)

    def places(
        self, slots: Float[ndarray, "n M D"], maps: Float[Tensor, "n M h w"]
    ) -> Float[ndarray, "n M 2"]:
        """Row and column of each slot as shares of the picture, as the probe reads them; without
        one, where the slot looks in the true image."""
        if self.probe is None:
            return told_apart(centres(maps))
        found = self.features(slots)
        return np.stack([found[..., self.probe.names.index(name)] for name in PLACE], -1)

    @torch.no_grad()
    def maps(self, images: Shaped[Tensor, "n H W C"]) -> Float[Tensor, "n M h w"]:
        """What each slot is made from, light on dark: an extractor may show its object dark."""
        encoder: Any = self.model.encoder
        maps = torch.cat([encoder.maps(part).float() for part in images.split(AT_ONCE)])
        if getattr(encoder, "contrasted", False):
            return maps
        return contrast(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def as_masks(maps: Float[Tensor, "n M h w"]) -> UInt8[ndarray, "n M h w"]:
    """255 where a map is lightest."""
    most = maps.amax((-2, -1), keepdim=True).clamp(min=FAINT)
    return to_bytes((maps / most).cpu().numpy())


def centres(maps: Float[Tensor, "n M h w"]) -> Float[ndarray, "n M 2"]:
    """The centre of what stands out in each map, as shares of its sides; NaN if nothing does."""
    most, least = maps.amax((-2, -1), keepdim=True), maps.amin((-2, -1), keepdim=True)
    weight = (maps - (most + least) / 2).clamp(min=0)
    total = weight.sum((-2, -1)).clamp(min=1e-12)
    along = [(torch.arange(side, device=maps.device) + 0.5) / side for side in maps.shape[-2:]]
    row = (weight.sum(-1) * along[0]).sum(-1) / total
    column = (weight.sum(-2) * along[1]).sum(-1) / total
    place = torch.stack([row, column], -1)
    faint = (most - least).flatten(2) < FAINT
    found: ndarray = torch.where(faint, torch.nan, place).cpu().numpy()
    return found
