"""Switching rules off: which rules a thread, or an asyncio task, has disabled.

Each rule has a number of its own, never used again, because removing a rule changes the positions
of later ones. What is disabled is kept per context (`contextvars`) and not in the rule set, so
other threads, copies and saved states never see it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool

_next = itertools.count()
_disabled: ContextVar[tuple[int, ...]] = ContextVar("disabled", default=())
"""Numbers of the rules that are off in this context, once for every open `disabled`."""
_lock = threading.Lock()


class Switches:
    """The numbers of a set's rules, in their order, and which of them may fire."""

    def __init__(self, count: int) -> None:
        self.numbers: list[int] = []
        self.used = False
        """Whether any thread currently has a rule of this set switched off. Compiled code is
        guarded by this, and looks up what its own thread has disabled at run time."""
        self._open = 0
        self.add(count)

    def __reduce__(self) -> tuple[type[Switches], tuple[int]]:
        return Switches, (len(self.numbers),)  # copies are other rules, all switched on

    def add(self, count: int) -> None:
        self.numbers += itertools.islice(_next, count)

    def remove(self, i: int) -> None:
        del self.numbers[i]

    @contextmanager
    def off(self, indices: Sequence[int]) -> Iterator[None]:
        """Inside, these rules may not fire."""
        numbers = [self.numbers[i] for i in indices]
        _disabled.set((*_disabled.get(), *numbers))
        self._count(1)
        try:
            yield
        finally:
            # Not the previous value: contexts need not be closed in reverse order.
            left = list(_disabled.get())
            for number in numbers:
                if number in left:
                    left.remove(number)
            _disabled.set(tuple(left))
            self._count(-1)

    def _count(self, change: int) -> None:
        with _lock:
            self._open += change
            self.used = self._open > 0

    def allowed(self, device: torch.device) -> Bool[Tensor, "N"] | None:
        """Which rules may fire, or None when all may."""
        if not self.used:
            return None
        if torch.compiler.is_dynamo_compiling():
            # Not is_exporting(): up to torch 2.11 the compiler takes it to be always true.
            if getattr(torch.compiler, "_is_exporting_flag", False):  # depends on its caller
                raise RuntimeError("disabled: torch.export needs strict=False inside of it")
            mask: Tensor = torch.ops.nps.enabled(self.numbers, device)
            return mask
        disabled = _disabled.get()
        if not any(number in disabled for number in self.numbers):
            return None
        return enabled(self.numbers, device)


def enabled(numbers: Sequence[int], device: torch.device) -> Bool[Tensor, "N"]:
    """Which rules may fire. Filled in place: CUDA graphs cannot capture a copy from the host."""
    disabled = _disabled.get()
    mask = torch.ones(len(numbers), dtype=torch.bool, device=device)
    for i, number in enumerate(numbers):
        if number in disabled:
            mask[i].fill_(False)
    return mask


def _fake(numbers: Sequence[int], device: torch.device) -> Tensor:
    return torch.empty(len(numbers), dtype=torch.bool, device=device)


# For compiled code, which cannot read a context variable. Where torch captures compiled code in a
# CUDA graph, it must leave this out: a graph would keep the mask that it was captured with.
_tag = getattr(torch.Tag, "cudagraph_unsafe", None)  # not in torch 2.6
_unsafe: dict[str, Any] = {} if _tag is None else {"tags": [_tag]}
_schema = "(int[] numbers, Device device) -> Tensor"
torch.library.custom_op(
    "nps::enabled", enabled, mutates_args=(), schema=_schema, **_unsafe
).register_fake(_fake)
