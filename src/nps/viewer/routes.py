"""All routes of the interface: what is answered, and the page frozen with its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nps.errors import UserError
from nps.viewer.answers import ANSWERS, Answer
from nps.viewer.freeze import frozen_page
from nps.viewer.session import Content, Session


def answer(session: Session, route: str, body: Mapping[str, Any]) -> Answer:
    """The answer to a request, or a `UserError` that says what is wrong with it."""
    return ROUTES[route](session, body)


def html(session: Session, body: Mapping[str, Any]) -> Answer:
    asked, other = session.asked(body), body.get("compare")
    if other is not None and not isinstance(other, Mapping):
        raise UserError("compare: expected an object with model and episode")
    compare = None if other is None else session.asked(other).model.number
    found = frozen_page(session, asked.model.number, asked.episode, body.get("edits"), compare)
    return Content(found.encode(), "text/html")


ROUTES = {**ANSWERS, "/api/html": html}
