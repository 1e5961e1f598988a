"""What the models of a page are called, so that no two of them have the same name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from nps.viewer.lineage import record_of
from nps.zoo import is_shipped


def titles(runs: Sequence[Any]) -> list[str]:
    """Preset and seed; of an edited model also its folder, and of equal ones what differs."""
    found = [title(run) for run in runs]
    for more in MORE:
        found = _told_apart(found, [more(run) for run in runs])
    return _told_apart(found, [f"number {place}" for place in range(1, len(runs) + 1)])


def title(run: Any) -> str:
    """Of a model alone: preset and seed, or the name that it ships by, if that is another."""
    name = f"{run.preset}, seed {run.seed}"
    shipped = run.folder is not None and is_shipped(run.folder)
    if shipped and not run.folder.name.startswith(run.preset):
        return str(run.folder.name)
    if record_of(run) is None:
        return name
    return f"{name}, edited as {run.folder.name}"


def _told_apart(found: list[str], more: Sequence[str]) -> list[str]:
    """Titles with more of those that are equal, where that makes them differ."""
    times, pairs = Counter(found), Counter(zip(found, more, strict=True))
    return [
        f"{name}, {word}" if word and times[name] > pairs[name, word] else name
        for name, word in zip(found, more, strict=True)
    ]


MORE: tuple[Callable[[Any], str], ...] = (
    lambda run: "" if run.folder is None else run.folder.name,
    lambda run: "" if run.folder is None else os.path.relpath(run.folder),
    lambda run: f"step {run.step}" if hasattr(run, "step") else "",
)
