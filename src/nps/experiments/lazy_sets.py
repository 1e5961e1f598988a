"""The data of a task by split, for programs and notebooks, made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


class LazySets(Mapping[str, T]):
    """split -> its data.

    Args:
        splits: their names.
        make: makes one of them, or returns the one made before.
    """

    def __init__(self, splits: Sequence[str], make: Callable[[str], T]) -> None:
        self._splits, self._make = tuple(splits), make

    def __getitem__(self, split: str) -> T:
        if split not in self._splits:
            raise KeyError(split)
        return self._make(split)

    def __contains__(self, split: object) -> bool:
        return split in self._splits

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)
