"""Worlds that users play in, each beside the imagination of its model."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from threading import Lock
from typing import Any

from nps.errors import UserError
from nps.inspect.workbench import Moment, World, require_index
from nps.viewer.models import Shown
from nps.viewer.payload import number, numbers
from nps.viewer.png import data_url, png

MOST = 8
"""Worlds at a time; the one that was left longest is closed."""
MOST_SEEDS = 2**31


class Worlds:
    """The worlds that are open, by their ids."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[Shown, World]] = OrderedDict()
        self._lock = Lock()

    def start(self, model: Shown, seed: int) -> dict[str, Any]:
        require_index("seed", seed, MOST_SEEDS)
        with model.lock:
            world = model.workbench.world(seed)
            if world is None:
                raise UserError("this model's world cannot be stepped here")
            moment = of_moment(world.now())
        name = secrets.token_hex(8)
        with self._lock:
            self._open[name] = model, world
            while len(self._open) > MOST:
                self._open.popitem(last=False)
        named = {"slots": world.slot_names, "actions": world.actions}
        names = {key: [*value] for key, value in named.items() if value is not None}
        return {"world": name, "moment": moment, **names}

    def act(self, name: str, action: int) -> dict[str, Any]:
        with self._lock:
            if name not in self._open:
                raise UserError("world: not open any more; start it again")
            self._open.move_to_end(name)
            model, world = self._open[name]
        require_index("action", action, len(model.workbench.actions))
        with model.lock:
            return {"moment": of_moment(world.act(action))}


def of_moment(moment: Moment) -> dict[str, Any]:
    parted = moment.parted
    return {
        "step": moment.step,
        "true": data_url(png(moment.true)),
        "imagined": data_url(png(moment.imagined)),
        "right": bool(moment.right),
        "error": number(float(moment.error)),
        "event": moment.event,
        "rule": [[int(rule) for rule in stage] for stage in moment.rule],
        "context": [[int(slot) for slot in stage] for stage in moment.context],
        "places": None if moment.places is None else _places(moment.places),
        "parted": None
        if parted is None
        else {"step": parted.step, "slot": parted.slot, "rule": parted.rule},
        "looked": moment.looked,
    }


def _places(places: Any) -> list[list[float | None] | None]:
    """Row and column of each slot, null for those that have none."""
    rows = [numbers(place) for place in places]
    return [None if None in row else row for row in rows]
