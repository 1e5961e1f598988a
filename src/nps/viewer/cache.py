"""A cache that is bounded by the bytes of what it holds, not by their number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class Cache(Generic[V]):
    """Least recently used values leave first; the newest stays, whatever its size.

    Args:
        limit: bytes.
        size: of a value.
    """

    def __init__(self, limit: int, size: Callable[[V], int]) -> None:
        self._limit, self._size, self._lock = limit, size, Lock()
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self.bytes = 0

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key, made if it is not there. Two threads may both make it."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._drop(key)
            self._values[key] = value
            self.bytes += self._size(value)
            while self.bytes > self._limit and len(self._values) > 1:
                self._drop(next(iter(self._values)))
        return value

    def __len__(self) -> int:
        return len(self._values)

    def _drop(self, key: Hashable) -> None:
        if key in self._values:
            self.bytes -= self._size(self._values.pop(key))
