"""The names of a set's rules: one for each, all different."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from nps.rules.check import require_int, shown


class Names(Sequence[str]):
    """A list of different names. Entries can be replaced; only the rule set changes its length.

    Equal to a list of the same names.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names: list[str] = []
        for name in names:
            self._append(name)

    @classmethod
    def numbered(cls, count: int) -> Names:
        """ "rule 0", "rule 1" and so on."""
        return cls(f"rule {i}" for i in range(count))

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, i: int) -> str: ...

    @overload
    def __getitem__(self, i: slice) -> list[str]: ...

    def __getitem__(self, i: int | slice) -> str | list[str]:
        return self._names[i]

    def __setitem__(self, i: int, name: str) -> None:
        require_int("names: index", i)
        i = range(len(self))[i]
        self._require_new(name, besides=i)
        self._names[i] = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Names, list, tuple)) and self._names == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._names)

    # -- for the rule set ---------------------------------------------------------------------

    def grow(self, count: int) -> None:
        """Append names that are not in use."""
        unused = (f"rule {i}" for i in itertools.count() if f"rule {i}" not in self._names)
        self._names += list(itertools.islice(unused, count))

    def remove_at(self, i: int) -> None:
        del self._names[i]

    def nearest(self, name: str) -> str:
        """A suggestion for a mistyped name."""
        close = difflib.get_close_matches(name, self._names, n=1, cutoff=0.5)
        some = ", ".join(map(repr, self._names[:10])) + (", ..." if len(self) > 10 else "")
        return f"did you mean {close[0]!r}?" if close else f"there are {some}"

    def _append(self, name: str) -> None:
        self._require_new(name)
        self._names.append(name)

    def _require_new(self, name: object, besides: int | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"names: got {shown(name)}, expected a non-empty string")
        if name in self._names and self._names.index(name) != besides:
            raise ValueError(f"names: got {name!r} twice, expected a different name for each rule")


def without_repetitions(names: Iterable[str]) -> Iterator[str]:
    """Number the repetitions of a name: versions before 0.1.0 allowed them."""
    seen: set[str] = set()
    for name in names:
        tries = itertools.chain([name], (f"{name} {k}" for k in itertools.count(2)))
        seen.add(free := next(each for each in tries if each not in seen))
        yield free
