"""A page that needs no server: an episode with every answer that can be computed beforehand.

It holds the episode as it is and under the edits, why every rule fired, what the rules do, and the
episode with each rule switched off. Only the page itself asks; what it did not get it cannot show.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nps.viewer.answers import ANSWERS
from nps.viewer.bundle import page
from nps.viewer.payload import canonical
from nps.viewer.png import data_url
from nps.viewer.session import Content, Session
from nps.viewer.sheets import KINDS, count, has

WARN = 15_000_000
"""Bytes of a page from which on a browser takes long to open it."""
WHY_BYTES, MOST_WHYS = 3_000_000, 1_000
"""Of explanations, which take up to 0.1 s each: of long episodes not all fit."""
WHAT_IF_BYTES, WHAT_IF_STEPS = 3_000_000, 3_000
"""Of episodes with a rule switched off, each of which is rolled out."""
LEAST_SHARED = 500
"""Characters from which on equal answers are stored once."""


def frozen_page(
    session: Session,
    model: int = 0,
    episode: int = 0,
    edits: Mapping[str, Any] | None = None,
    compare: int | None = None,
) -> str:
    """One self-contained HTML file.

    Args:
        session: that has the models.
        model, episode: what is shown.
        edits: as JSON values, as the page sends them.
        compare: another model beside it, on the same episode.
    """
    edits = dict(edits or {})
    numbers = [model] if compare is None else [model, compare]
    frozen = Frozen(session.subset(numbers))
    frozen.ask("/api/models", {})
    shown = frozen.episode({"model": 0, "episode": episode, "edits": {}})
    plays = [shown]
    if edits:
        plays.append(frozen.episode({"model": 0, "episode": episode, "edits": edits}))
    start: dict[str, Any] = {"model": 0, "episode": episode, "edits": edits}
    if compare is not None:
        frozen.episode({"model": 1, "episode": episode, "edits": {}})
        start["with"] = 1
    if shown["rules"]:
        frozen.ask("/api/rules", {"model": 0})
        frozen.explanations(plays[::-1])
        frozen.what_ifs(plays[-1], episode, edits)
    title = f"{frozen.session.models[0].title}: {shown['title']}"
    return page(title, {"answers": frozen.answers, "start": start})


class Frozen:
    """Collects answers."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.answers: dict[str, Any] = {}
        self.stored = 0
        """Characters of all answers."""
        self._keys: dict[str, str] = {}
        """Long answers -> the first request that got them."""

    def ask(self, route: str, body: Mapping[str, Any]) -> Any:
        """Ask, store and return the answer."""
        found = ANSWERS[route](self.session, body)
        if isinstance(found, Content):
            found = {"image": data_url(found.data)}
        key, text = f"{route}\n{canonical(body)}", canonical(found)
        if len(text) >= LEAST_SHARED and (first := self._keys.setdefault(text, key)) != key:
            self.answers[key] = {"as": first}
        else:
            self.answers[key] = found
            self.stored += len(text)
        return found

    def episode(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A playback with all its frames."""
        found: dict[str, Any] = self.ask("/api/play", body)
        playback = self.session.playback(self.session.known(found))
        for kind in KINDS:
            if has(playback, kind):
                for sheet in range(count(playback)):
                    wish = {"play": found["play"], "kind": kind, "sheet": sheet}
                    self.ask("/api/frames", wish)
        return found

    def explanations(self, plays: list[dict[str, Any]]) -> None:
        """Why everything fired, the earliest first, as long as there is room."""
        begin = self.stored
        firings = ((play["play"], *where) for play in plays for where in self._firings(play))
        for play, step, stage, slot in itertools.islice(firings, MOST_WHYS):
            self.ask("/api/why", {"play": play, "step": step, "stage": stage, "slot": slot})
            if self.stored - begin > WHY_BYTES:
                return

    def what_ifs(self, shown: dict[str, Any], episode: int, edits: Mapping[str, Any]) -> None:
        """The episode with each rule switched off, or on again, as long as there is room.

        The rules that fire most come first.
        """
        uses = self._uses(shown)
        rules = sorted(range(shown["rules"]), key=lambda rule: -uses[rule])
        off, begin = set(edits.get("disabled", [])), self.stored
        for rule in rules[: 1 + WHAT_IF_STEPS // max(1, shown["steps"])]:
            changed = {**edits, "disabled": sorted(off ^ {rule})}
            if not changed["disabled"]:
                del changed["disabled"]
            if self.stored - begin > WHAT_IF_BYTES:
                return
            self.episode({"model": 0, "episode": episode, "edits": changed})

    def _firings(self, play: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
        """Step, stage and slot of all that fired."""
        record = self.session.playback(self.session.known(play)).record
        assert record is not None
        for step, stage, slot in np.argwhere(record.rule >= 0):
            yield int(step), int(stage), int(slot)

    def _uses(self, play: dict[str, Any]) -> Counter[int]:
        """How often each rule fired."""
        record = self.session.playback(self.session.known(play)).record
        assert record is not None
        return Counter(record.rule[record.rule >= 0].tolist())
