"""What the viewer knows: the models that it shows, and the playbacks and sheets made so far.

A playback has an id made of what it shows, so that it can be made again after it has left the
cache.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

from nps.errors import UserError
from nps.inspect.edits import Edits
from nps.inspect.playback import Playback
from nps.inspect.workbench import require_index
from nps.viewer import payload, sheets
from nps.viewer.cache import Cache
from nps.viewer.models import Shown
from nps.viewer.slots import slot_names
from nps.viewer.titles import titles
from nps.viewer.worlds import Worlds

PLAYBACK_BYTES = 768_000_000
SHEET_BYTES = 64_000_000
MOST_PLAYS = 10_000
"""Ids that are remembered; their playbacks are in the cache, or made again."""


@dataclass(frozen=True)
class Content:
    """An answer that is not JSON."""

    data: bytes
    kind: str
    """Media type."""


@dataclass(frozen=True)
class Play:
    """An episode of a model under some edits."""

    model: Shown
    episode: int
    edits: Edits

    @cached_property
    def id(self) -> str:
        what = [self.model.number, self.episode, payload.plain(self.edits.to_json())]
        return hashlib.blake2b(payload.canonical(what).encode(), digest_size=12).hexdigest()


class Session:
    """Models and what was computed of them.

    Args:
        runs: as `nps.load` returns them.
    """

    def __init__(self, runs: Sequence[Any]) -> None:
        named = zip(runs, titles(runs), strict=True)
        self.models = [Shown(number, run, title) for number, (run, title) in enumerate(named)]
        self._playbacks: Cache[Playback] = Cache(PLAYBACK_BYTES, payload.size)
        self._sheets: Cache[bytes] = Cache(SHEET_BYTES, len)
        self._known: OrderedDict[str, Play] = OrderedDict()
        self._lock = Lock()
        self.worlds = Worlds()

    def subset(self, numbers: Sequence[int]) -> Session:
        """A session of some of the models, counted anew; it shares what is known of them."""
        other = Session([])
        for place, number in enumerate(numbers):
            require_index("model", number, len(self.models))
            other.models.append(self.models[number].renumbered(place))
        return other

    # -- playbacks ----------------------------------------------------------------------------

    def shown(self, body: Mapping[str, Any]) -> Shown:
        return self.models[require_index("model", whole(body, "model"), len(self.models))]

    def asked(self, body: Mapping[str, Any]) -> Play:
        """The model, episode and edits that a request names."""
        model = self.shown(body)
        episode = require_index("episode", whole(body, "episode"), model.workbench.count())
        return self.remember(Play(model, episode, Edits.from_json(body.get("edits", {}))))

    def remember(self, play: Play) -> Play:
        with self._lock:
            self._known[play.id] = play
            self._known.move_to_end(play.id)
            while len(self._known) > MOST_PLAYS:
                self._known.popitem(last=False)
        return play

    def known(self, body: Mapping[str, Any]) -> Play:
        """The play that a request names by its id."""
        name = body.get("play")
        with self._lock:
            if not isinstance(name, str) or name not in self._known:
                raise UserError("play: not known any more; play the episode again")
            return self._known[name]

    def playback(self, play: Play) -> Playback:
        def make() -> Playback:
            bench = play.model.workbench
            played = bench.play(play.episode, play.edits)
            return replace(played, slot_names=slot_names(bench, played.slot_names))

        with play.model.lock:
            return self._playbacks.get(play.id, make)

    def sheet(self, play: Play, kind: str, number: int) -> bytes:
        return self._sheets.get(
            (play.id, kind, number), lambda: sheets.sheet(self.playback(play), kind, number)
        )


def whole(body: Mapping[str, Any], name: str) -> int:
    """A whole number of a request."""
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"{name}: got {json.dumps(value)[:60]}, expected a whole number")
    return value


def text(body: Mapping[str, Any], name: str) -> str:
    """A text of a request."""
    value = body.get(name)
    if not isinstance(value, str):
        raise UserError(f"{name}: got {json.dumps(value)[:60]}, expected a text")
    return value
