"""The interface of the viewer: for each route, what it answers to a request.

The server and the frozen page take their answers from here alike; `routes.py` adds that page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from nps.errors import UserError
from nps.inspect.edits import Edits
from nps.inspect.explanations import explain
from nps.inspect.films import MEDIA, Format, animate, missing
from nps.inspect.playback import first_change, first_difference
from nps.viewer import keeping, payload, sheets
from nps.viewer.png import data_url, png
from nps.viewer.session import Content, Play, Session, text, whole

Answer = dict[str, Any] | Content

FILMS: tuple[Format, ...] = ("gif", "mp4", "webp")
"""The formats that the page offers."""
LEAST_EPISODES, MOST_STEPS = 2, 1_000
"""What rules are described by: many short episodes, or few long ones."""


def models(session: Session, body: Mapping[str, Any]) -> Answer:
    found = []
    for model in session.models:
        first = session.playback(Play(model, model.workbench.opening, Edits()))
        found.append(model.about() | {"slots": list(first.slot_names)})
    return {"models": found}


def play(session: Session, body: Mapping[str, Any]) -> Answer:
    asked = session.asked(body)
    try:
        playback = session.playback(asked)
    except UserError as error:
        raise UserError(_named(session, asked, str(error))) from None
    bench = asked.model.workbench
    found = {"play": asked.id, "title": bench.title(asked.episode), "decoded": bench.decodes}
    found |= payload.of_playback(playback)
    found["same"] = payload.frames_hash(playback)
    found["base"] = None
    if asked.edits:
        base = session.remember(Play(asked.model, asked.episode, Edits()))
        unedited = session.playback(base)
        found["base"] = {
            "play": base.id,
            "error": payload.numbers(unedited.error),
            "first_difference": first_difference(playback, unedited),
            "first_change": first_change(playback, unedited),
        }
    return found


def _named(session: Session, asked: Play, text: str) -> str:
    """What an edit did wrong, with slots called as on the page."""
    try:
        names = session.playback(Play(asked.model, asked.episode, Edits())).slot_names
    except UserError:  # of the episode, and not of the edits
        return text
    known = {f"slot {m}": name for m, name in enumerate(names)}
    return re.sub(r"\bslot \d+", lambda found: known.get(found[0], found[0]), text)


def frames(session: Session, body: Mapping[str, Any]) -> Answer:
    asked, kind = session.known(body), text(body, "kind")
    if kind not in sheets.KINDS:
        raise UserError(f"kind: got {kind!r}, expected one of {', '.join(sheets.KINDS)}")
    if not sheets.has(session.playback(asked), kind):
        raise UserError(f"kind: this model has no {kind} frames")
    return Content(session.sheet(asked, kind, whole(body, "sheet")), "image/png")


def why(session: Session, body: Mapping[str, Any]) -> Answer:
    asked = session.known(body)
    where = whole(body, "step"), whole(body, "slot"), whole(body, "stage")
    with asked.model.lock:
        explained = explain(asked.model.workbench, session.playback(asked), *where)
    found: dict[str, Any] = payload.plain(explained.to_json(lambda picture: data_url(png(picture))))
    return found


def rules(session: Session, body: Mapping[str, Any]) -> Answer:
    model = session.shown(body)
    if model.workbench.layer is None:
        raise UserError("this model has no rules")
    steps = session.playback(Play(model, 0, Edits())).steps
    most = min(model.workbench.described, MOST_STEPS // max(1, steps))
    return model.rules(max(LEAST_EPISODES, most))


def rename(session: Session, body: Mapping[str, Any]) -> Answer:
    return keeping.rename(session.shown(body), whole(body, "rule"), text(body, "name"))


def save(session: Session, body: Mapping[str, Any]) -> Answer:
    name = None if body.get("name") is None else text(body, "name")
    return keeping.save(session.shown(body), Edits.from_json(body.get("edits", {})), name)


def films(session: Session, body: Mapping[str, Any]) -> Answer:
    """The formats of films, each with what is missing here to make it."""
    return {"films": {kind: missing(kind) for kind in FILMS}}


def film(session: Session, body: Mapping[str, Any]) -> Answer:
    asked, kind = session.known(body), cast("Format", text(body, "format"))
    playback, bench = session.playback(asked), asked.model.workbench
    made = animate(playback, None, kind, fps=bench.fps, rule_names=bench.rule_names)
    return Content(made.data, MEDIA[made.format])


def world_start(session: Session, body: Mapping[str, Any]) -> Answer:
    return session.worlds.start(session.shown(body), whole(body, "seed"))


def world_act(session: Session, body: Mapping[str, Any]) -> Answer:
    return session.worlds.act(text(body, "world"), whole(body, "action"))


ANSWERS: dict[str, Callable[[Session, Mapping[str, Any]], Answer]] = {
    "/api/models": models,
    "/api/play": play,
    "/api/frames": frames,
    "/api/why": why,
    "/api/rules": rules,
    "/api/rename": rename,
    "/api/save": save,
    "/api/films": films,
    "/api/film": film,
    "/api/world/start": world_start,
    "/api/world/act": world_act,
}
