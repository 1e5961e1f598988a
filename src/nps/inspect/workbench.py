"""The contract between an experiment and the workbench: a trained model with episodes to play.

Each experiment that can be viewed has a `workbench.py` with a subclass. It knows how its model is
rolled out step by step, what people can read of a slot, and, where there is one, the world to play
in. Everything else (the page, explanations, films, descriptions of rules) is the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from nps.errors import UserError
from nps.inspect.edits import Edits
from nps.inspect.playback import Playback
from nps.rules import RuleLayer

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8
    from numpy import ndarray


class Workbench(ABC):
    """A trained model and the episodes that it is shown on.

    Args:
        task: of the run.
        model: trained, in evaluation mode, on the CPU or wherever the task is.
    """

    fps: float = 4.0
    """Frames per second at which playback starts."""
    error_name: str = "error"
    encoder: str | None = None
    """If the error is measured in the model's own encodings: what tells its encoder from those of
    other models, whose errors cannot be compared with it."""
    actions: Sequence[str] = ()
    """Names of the discrete actions; empty if nothing acts or actions are continuous."""
    keys: Mapping[str, Sequence[int]] = {}
    """Key ("ArrowUp", "a") -> the action it means for each slot, or a single action for all."""
    decodes: bool = False
    """Whether the model draws its predictions itself."""
    described: int = 50
    """Most episodes that the page plays to describe rules; fewer where a roll-out takes seconds."""

    def __init__(self, task: Any, model: nn.Module) -> None:
        self.task, self.model = task, model

    @property
    def layer(self) -> RuleLayer | None:
        """The rule layer that the workbench shows and edits; None if the model has none."""
        layers = [module for module in self.model.modules() if isinstance(module, RuleLayer)]
        return layers[0] if layers else None

    @property
    def rule_names(self) -> tuple[str, ...]:
        return () if self.layer is None else tuple(self.layer.rules.names)

    @abstractmethod
    def count(self) -> int:
        """Number of episodes: those of the validation set, so that test data stay unseen."""

    @property
    def opening(self) -> int:
        """The episode that the page opens with: one in which something happens."""
        return 0

    def title(self, episode: int) -> str:
        return f"episode {episode}"

    @abstractmethod
    def play(self, episode: int, edits: Edits = Edits()) -> Playback:  # noqa: B008, it is frozen
        """The episode with the model's predictions under some edits."""

    # -- what people can read of a slot -------------------------------------------------------

    @property
    @abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """Names of what `features` returns, "row" and "column" if the slot's place is known."""

    @abstractmethod
    def features(self, slots: Float[ndarray, "*batch M D"]) -> Float[ndarray, "*batch M F"]:
        """What people can read of slots."""

    @abstractmethod
    def direction(self, feature: str) -> Float[ndarray, "D"]:
        """The smallest change of a slot that raises a feature by 1, to first order."""

    def slot_direction(self, slot: int, feature: str) -> Float[ndarray, "D"]:
        """As `direction`, of one slot; others where slots do not show features alike."""
        return self.direction(feature)

    # The rule layer may read something else than the slots: with an action, or in other units.

    @property
    def slot_size(self) -> int:
        """D."""
        if self.feature_names:
            return len(self.direction(self.feature_names[0]))
        return 0 if self.layer is None else self.layer.rules.slot_dim

    def layer_slots(self, before: Float[ndarray, "*batch M S"]) -> Float[ndarray, "*batch M D"]:
        """The slots, of what the rule layer reads; by default they are its first numbers."""
        return before[..., : self.slot_size]

    def layer_features(self, before: Float[ndarray, "*batch M S"]) -> Float[ndarray, "*batch M F"]:
        """As `features`, of what the rule layer reads; NaN where that does not say."""
        return self.features(self.layer_slots(before))

    def layer_direction(self, feature: str) -> Float[ndarray, "S"]:
        """As `direction`, in what the rule layer reads; by default a slot, then other inputs."""
        within = self.direction(feature)
        size = len(within) if self.layer is None else self.layer.rules.slot_dim
        return np.concatenate([within, np.zeros(max(0, size - len(within)), within.dtype)])

    @property
    def reading(self) -> str:
        """How well features are known, in a sentence; empty if they are the slot's own numbers."""
        return ""

    @property
    def drags(self) -> bool:
        """Whether a slot can be dragged through the picture."""
        return {"row", "column"} <= set(self.feature_names)

    def picture(self, slots: Float[ndarray, "M D"], slot: int) -> UInt8[ndarray, "H W 3"] | None:
        """One slot alone as the model draws it; None if it does not decode single slots."""
        return None

    def pictures_of_step(
        self, playback: Playback, step: int, slot: int
    ) -> tuple[UInt8[ndarray, "H W 3"], UInt8[ndarray, "H W 3"]] | None:
        """A slot before and after a step, where that is seen in the frames that the model draws and
        not by drawing the slot; else None."""
        return None

    # -- play ---------------------------------------------------------------------------------

    def world(self, seed: int) -> World | None:
        """The true world beside the model's imagination; None if it cannot be stepped."""
        return None


@dataclass(frozen=True)
class Moment:
    """The true world and the model's imagination after the same actions."""

    step: int
    true: UInt8[ndarray, "H W 3"]
    imagined: UInt8[ndarray, "H W 3"]
    right: bool
    """Whether both show the same."""
    error: float
    event: str
    """What truly happened, in a word."""
    rule: list[list[int]]
    """K x M: what fired on each slot in the last step, -1 for nothing; empty without rules."""
    context: list[list[int]]
    places: Float[ndarray, "M 2"] | None
    """Of the slots, as shares of the picture's sides."""
    parted: Parted | None
    looked: int = 0
    """The step at which the model last saw the world; its imagination starts there."""


@dataclass(frozen=True)
class Parted:
    """Where the imagination left the world for the first time since the model looked at it."""

    step: int
    slot: int | None
    """The slot that is farthest from the truth, where that is known."""
    rule: int | None
    """The rule that fired on it last; -1 if none did."""


class World(ABC):
    """A world that is stepped by the user, and a model that follows it in its imagination."""

    slot_names: Sequence[str] | None = None
    """Where worlds differ in that; None: as in the episodes."""
    actions: Sequence[str] | None = None
    """The workbench's actions as they are called here; None: as there."""

    @abstractmethod
    def now(self) -> Moment: ...

    @abstractmethod
    def act(self, action: int) -> Moment:
        """Do one action in both."""


def require_index(name: str, value: int, count: int) -> int:
    if not 0 <= value < count:
        raise UserError(f"{name}: got {value}, expected 0 to {count - 1}")
    return value


def placed(
    bench: Workbench, slots: Float[ndarray, "M D"], edits: Edits, step: int
) -> Float[ndarray, "M D"]:
    """The slots before a step, with the features that are set there by hand."""
    new = np.array(slots, copy=True)
    for edit in edits.placed:
        if edit.step != step:
            continue
        if edit.feature not in bench.feature_names:
            known = ", ".join(bench.feature_names)
            raise UserError(f"feature: got {edit.feature!r}, expected one of {known}")
        slot = require_index("slot", edit.slot, len(new))
        now = bench.features(new)[slot, bench.feature_names.index(edit.feature)]
        new[slot] += (edit.value - now) * bench.slot_direction(slot, edit.feature)
    return new
