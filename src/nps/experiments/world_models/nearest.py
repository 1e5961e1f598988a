"""The image that a prediction looks like, though the model has no decoder.

As in `nps.inspect.rollouts`: the image with the nearest encoding, out of some training images and
the true ones of the episode. Here a world may add others that the slots seem to show, and encodings
are kept, so that an edit is answered at once.
"""

from __future__ import annotations

import time
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.experiments.world_models.episodes import Episodes, transitions
from nps.experiments.world_models.scenes import Scene
from nps.metrics.ranking import nearest
from nps.models.world_model import WorldModel

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

LEAST, MOST = 200, 2_000
"""Images of the pool; as many encodings are kept besides."""
SECONDS = 2.0
"""Time to encode the pool, once there are enough: slot attention takes milliseconds an image."""
BYTES = 64_000_000
"""Most of their images."""
AT_ONCE = 50


class Encoded(NamedTuple):
    """Images of the training set and their slots."""

    episode: Int[Tensor, "P"]
    time: Int[Tensor, "P"]
    images: Shaped[Tensor, "P H W C"]
    slots: Float[Tensor, "P M D"]


class Drawn(NamedTuple):
    """What the frames of an episode show, as the model sees them."""

    images: Shaped[Tensor, "T+1 H W C"]
    """With the nearest encodings to the predicted slots."""
    true_slots: Float[Tensor, "T+1 M D"]
    """Encodings of the true images."""


class Pool:
    """Training images that can stand for a prediction; encoded when first needed.

    Args:
        model: trained.
        train: the episodes that it was trained on.
    """

    def __init__(self, model: WorldModel, train: Episodes) -> None:
        self.model, self.train = model, train
        self._known: dict[bytes, Tensor] = {}

    @torch.no_grad()
    def draw(self, slots: Float[Tensor, "n M D"], scene: Scene) -> Drawn:
        """The images of predicted slots, among those of the pool and of the scene."""
        shown = torch.cat([scene.images, scene.like(slots)])
        encoded = self.encode(shown)
        index = nearest(slots.float(), torch.cat([encoded, self.trained.slots]).float())
        images = torch.cat([shown, self.trained.images])[index]
        return Drawn(images, encoded[: len(scene.images)])

    @torch.no_grad()
    def encode(self, images: Shaped[Tensor, "n H W C"]) -> Float[Tensor, "n M D"]:
        """The slots of at least one image; equal ones are encoded once."""
        keys = [sha256(row).digest() for row in images.flatten(1).cpu().numpy()]
        new = {key: n for n, key in enumerate(keys) if key not in self._known}
        if len(self._known) + len(new) > MOST:
            self._known.clear()
            new = {key: n for n, key in enumerate(keys)}
        if new:
            found = self.model.encode(images[[*new.values()]])
            self._known.update(zip(new, found, strict=True))
        return torch.stack([self._known[key] for key in keys])

    @cached_property
    @torch.no_grad()
    def trained(self) -> Encoded:
        """Random training images, always the same, in the order in which they were drawn."""
        starts = transitions(self.train)
        draw = torch.Generator().manual_seed(0)
        some = torch.randperm(len(starts.time), generator=draw)[:MOST].to(starts.time.device)
        parts, until = [], time.monotonic() + SECONDS
        for at in some.split(AT_ONCE):
            images = self.train.images(starts.episode[at], starts.time[at])
            parts.append(
                Encoded(starts.episode[at], starts.time[at], images, self.model.encode(images))
            )
            size = images.nbytes * len(parts)
            if size > BYTES or (len(parts) * AT_ONCE >= LEAST and time.monotonic() > until):
                break
        return Encoded(*map(torch.cat, zip(*parts, strict=True)))
