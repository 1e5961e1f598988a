"""A true world that the user acts in, and a world model that follows it in its imagination.

The model sees the first image and then only the actions: what it got wrong stays wrong. The first
moment at which it shows something else than the world is kept, with the slot that is farthest from
the truth and the rule that changed it last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.experiments.world_models.places import if_any
from nps.experiments.world_models.scenes import Scene, frames
from nps.experiments.world_models.unrolling import predict
from nps.inspect.playback import Record
from nps.inspect.recording import recorded
from nps.inspect.workbench import Moment, Parted, World, require_index

if TYPE_CHECKING:
    from jaxtyping import Float

    from nps.experiments.world_models.workbench import WorldModelWorkbench

OVER = "over"
"""The event of an episode that has ended: nothing moves any more."""


class Reality(ABC):
    """A world that can be stepped; it starts where it was made."""

    @abstractmethod
    def scene(self) -> Scene:
        """What is seen now: one frame."""

    @abstractmethod
    def act(self, action: int) -> str:
        """Do an action; what happened in a word, `OVER` if the episode had ended."""


class Imagination(World):
    """
    Args:
        bench: of the model.
        reality: the true world.
    """

    def __init__(self, bench: WorldModelWorkbench, reality: Reality) -> None:
        self._bench, self._reality = bench, reality
        self._slots: Float[Tensor, "M D"] = bench.pool.encode(reality.scene().images)[0]
        self._record: Record | None = None
        self._step, self._event = 0, ""
        self._parted: Parted | None = None
        self._moment = self._look()

    def now(self) -> Moment:
        return self._moment

    @torch.no_grad()
    def act(self, action: int) -> Moment:
        require_index("action", action, len(self._bench.actions))
        self._event = self._reality.act(action)
        if self._event != OVER:
            self._step += 1
            with recorded(self._bench.layer) as recorder:
                done = torch.tensor(action, device=self._slots.device)
                self._slots = predict(self._bench, self._slots, done)
            self._record = recorder.record()
        self._moment = self._look()
        return self._moment

    def _look(self) -> Moment:
        scene = self._reality.scene()
        drawn = self._bench.pool.draw(self._slots[None], scene)
        right = bool((drawn.images == scene.images).all())
        away = (self._slots - drawn.true_slots[0]).square().sum(-1)
        if not right and self._parted is None:
            slot = int(away.argmax())
            self._parted = Parted(self._step, slot, last_rule(self._record, slot))
        maps = self._bench.maps(scene.images)
        places = if_any(self._bench.places(self._slots[None].cpu().numpy(), maps))
        record = self._record
        return Moment(
            self._step,
            frames(scene.images)[0],
            frames(drawn.images)[0],
            right,
            float(away.sum()),
            self._event,
            [] if record is None else record.rule[0].tolist(),
            [] if record is None else record.context[0].tolist(),
            None if places is None else places[0],
            self._parted,
        )


def last_rule(record: Record | None, slot: int) -> int | None:
    """The rule that changed a slot last in a step; -1 for none, None without rules."""
    if record is None:
        return None
    fired = [int(rule) for rule in record.rule[0, :, slot] if rule >= 0]
    return fired[-1] if fired else -1
