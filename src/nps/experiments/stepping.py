"""A workbench whose model goes from state to state, as in arithmetic, digits, balls and towers.

A subclass says what is true in an episode, how the model goes one step, and what can be seen of a
state. Here steps become a playback. The roll-out without edits is kept, so that an edit rolls out
only the steps that it can change.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from nps.errors import UserError
from nps.inspect.edits import Edits
from nps.inspect.intervene import intervened, require_steps
from nps.inspect.playback import Playback, Record
from nps.inspect.recording import Recorder, joined, recorded, some_steps
from nps.inspect.workbench import Workbench, placed, require_index

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8
    from numpy import ndarray

KEPT = 8
"""Episodes whose roll-outs without edits are kept."""


@dataclass(frozen=True)
class Episode:
    """What is true in T steps; subclasses add what their frames are made of."""

    events: tuple[str, ...]
    """What happened in each step."""
    slot_names: tuple[str, ...]
    actions: Int[ndarray, "T"] | None

    @property
    def steps(self) -> int:
        return len(self.events)


class Frame(NamedTuple):
    """What can be seen before a step, or after the last one."""

    true: UInt8[ndarray, "H W 3"]
    predicted: UInt8[ndarray, "H W 3"]
    slots: Float[ndarray, "M D"]
    error: float
    right: bool | None = None
    masks: UInt8[ndarray, "M h w"] | None = None
    places: Float[ndarray, "M 2"] | None = None
    away: Float[ndarray, "M"] | None = None
    """How far each slot is from the truth, where that is known."""


E = TypeVar("E", bound=Episode)
S = TypeVar("S")


@dataclass(frozen=True)
class Rolled(Generic[S]):
    """A roll-out of T steps: states before each of them and after the last."""

    states: list[S]
    frames: list[Frame]
    record: Record | None


class SteppedWorkbench(Workbench, Generic[E, S]):
    """A workbench with `E` for what is true and `S` for the model's state."""

    def __init__(self, task: Any, model: Any) -> None:
        super().__init__(task, model)
        self._kept: OrderedDict[int, Rolled[S]] = OrderedDict()

    # -- what a subclass says -----------------------------------------------------------------

    @abstractmethod
    def episode(self, number: int, acted: Mapping[int, int]) -> E:
        """What is true in an episode, with other actions at some steps."""

    @abstractmethod
    def start(self, episode: E) -> S:
        """The model's state at frame 0."""

    @abstractmethod
    def advance(self, episode: E, state: S, step: int) -> S:
        """The state after a step; the rule layer, if there is one, is called once."""

    @abstractmethod
    def slots_of(self, state: S) -> Float[Tensor, "M *slot"]:
        """What `features` reads and edits set, each slot flattened."""

    @abstractmethod
    def with_slots(self, state: S, slots: Float[Tensor, "M *slot"]) -> S:
        """The state with other slots."""

    @abstractmethod
    def frame(self, episode: E, state: S, step: int) -> Frame:
        """What can be seen of a state before `step`."""

    def frames(self, episode: E, states: Sequence[S], first: int) -> list[Frame]:
        """What can be seen of successive states, from the one before step `first` on."""
        return [self.frame(episode, state, first + i) for i, state in enumerate(states)]

    # -- the playback -------------------------------------------------------------------------

    def play(self, episode: int, edits: Edits = Edits()) -> Playback:  # noqa: B008, it is frozen
        require_index("episode", episode, self.count())
        true = self.episode(episode, self._acted(edits))
        actions = 0 if true.actions is None else len(self.actions)
        require_steps(edits, true.steps, len(true.slot_names), actions)
        for feature in (*(e.feature for e in edits.added), *(e.feature for e in edits.placed)):
            require_feature(self, feature)
        rolled = self._unedited(episode)
        if edits:
            rolled = self.roll(true, edits, rolled)
        return self._playback(true, rolled)

    @torch.no_grad()
    def roll(self, episode: E, edits: Edits, kept: Rolled[S] | None = None) -> Rolled[S]:
        """All steps, or those from which on the edits can change what was `kept`."""
        first = 0 if kept is None else min(edits.first_step(), len(kept.states) - 1)
        states = [self.start(episode)] if kept is None else kept.states[: first + 1]
        with ExitStack() as held:
            recorder = self._watched(held, edits, first)
            for step in range(first, episode.steps):
                states[step] = self.placed(states[step], edits, step)
                states.append(self.advance(episode, states[step], step))
        frames = [] if kept is None else kept.frames[:first]
        frames += self.frames(episode, states[first:], first)
        record = recorder.record()
        if first and record is not None and kept is not None and kept.record is not None:
            record = joined(some_steps(kept.record, 0, first), record)
        return Rolled(states, frames, record)

    def placed(self, state: S, edits: Edits, step: int) -> S:
        """The state with the features that are set by hand before a step."""
        if not any(edit.step == step for edit in edits.placed):
            return state
        slots = self.slots_of(state)
        flat = placed(self, slots.flatten(1).cpu().numpy(), edits, step)
        if not np.isfinite(flat).all():
            raise UserError(f"placed: at step {step} a slot has no such feature to set")
        return self.with_slots(state, torch.from_numpy(flat).to(slots).view_as(slots))

    def _acted(self, edits: Edits) -> dict[int, int]:
        """Step -> action. Without actions, `require_steps` refuses them."""
        for edit in edits.acted:
            if self.actions:
                require_index("action", edit.action, len(self.actions))
        return {edit.step: edit.action for edit in edits.acted}

    def _watched(self, held: ExitStack, edits: Edits, first: int) -> Recorder:
        """Edit and record the rule layer, until `held` is closed."""
        directions = {edit.feature: self.layer_direction(edit.feature) for edit in edits.added}
        held.enter_context(intervened(self.layer, edits, directions, first=first))
        return held.enter_context(recorded(self.layer))

    def _unedited(self, number: int) -> Rolled[S]:
        if number not in self._kept:
            self._kept[number] = self.roll(self.episode(number, {}), Edits())
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return self._kept[number]

    def _playback(self, episode: E, rolled: Rolled[S]) -> Playback:
        true, predicted, slots, error, right, masks, places, _ = zip(*rolled.frames, strict=True)
        slots = np.stack(slots)
        return Playback(
            np.stack(true),
            np.stack(predicted),
            stacked(right),
            np.array(error),
            self.error_name,
            slots,
            self.features(slots),
            self.feature_names,
            episode.slot_names,
            stacked(masks),
            stacked(places),
            episode.actions,
            episode.events,
            rolled.record,
        )


def stacked(parts: tuple[Any, ...]) -> Any:
    """None if there are none."""
    return None if parts[0] is None else np.stack(parts)


def require_feature(bench: Workbench, name: str) -> int:
    """Its index."""
    if name not in bench.feature_names:
        known = ", ".join(bench.feature_names)
        raise UserError(f"feature: got {name!r}, expected one of {known}")
    return bench.feature_names.index(name)
