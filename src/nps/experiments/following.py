"""A world that the user acts in, and a model that follows it from state to state.

The model never sees the true world again: what it got wrong stays wrong. The first frame that it
gets wrong is kept, with the slot that is farthest from the truth and the rule that fired on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import torch

from nps.experiments.stepping import Episode, Frame, SteppedWorkbench
from nps.inspect.recording import recorded
from nps.inspect.workbench import Moment, Parted, World, require_index

if TYPE_CHECKING:
    from jaxtyping import Int
    from numpy import ndarray

E = TypeVar("E", bound=Episode)
S = TypeVar("S")


class FollowedWorld(World, Generic[E, S]):
    """
    Args:
        bench: of the model.
        after: what is true after some actions.
    """

    def __init__(self, bench: SteppedWorkbench[E, S], after: Callable[[Sequence[int]], E]) -> None:
        self._bench, self._after = bench, after
        self._actions: list[int] = []
        self._true = after(self._actions)
        self._state = bench.start(self._true)
        self._rule: Int[ndarray, "K M"] = np.zeros((0, 0), int)
        self._context = self._rule
        self._parted: Parted | None = None

    def now(self) -> Moment:
        return self._moment(self._frame())

    @torch.no_grad()
    def act(self, action: int) -> Moment:
        require_index("action", action, len(self._bench.actions))
        self._actions.append(action)
        self._true, bench = self._after(self._actions), self._bench
        with recorded(bench.layer) as recorder:
            self._state = bench.advance(self._true, self._state, len(self._actions) - 1)
        record = recorder.record()
        if record is not None:
            self._rule, self._context = record.rule[0], record.context[0]
        frame = self._frame()
        if self._parted is None and not frame.right:
            self._parted = self._part(frame)
        return self._moment(frame)

    def _frame(self) -> Frame:
        return self._bench.frame(self._true, self._state, len(self._actions))

    def _part(self, frame: Frame) -> Parted:
        step = len(self._actions)
        if frame.away is None:
            return Parted(step, None, None)
        slot = int(np.argmax(frame.away))
        fired = [int(rule) for rule in self._rule[:, slot] if rule >= 0]
        rule = None if not len(self._rule) else fired[-1] if fired else -1
        return Parted(step, slot, rule)

    def _moment(self, frame: Frame) -> Moment:
        step = len(self._actions)
        return Moment(
            step,
            frame.true,
            frame.predicted,
            bool(frame.right),
            frame.error,
            self._true.events[step - 1] if step else "",
            self._rule.tolist(),
            self._context.tolist(),
            frame.places,
            self._parted,
        )
