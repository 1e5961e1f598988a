"""The routes of the server: the page, its static files, and the JSON interface.

Answers are computed in a thread; each model has a lock of its own.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nps.errors import RunFailed, UserError, one_line
from nps.viewer.guard import App, Guard
from nps.viewer.routes import ROUTES, answer
from nps.viewer.session import Content, Session

STATIC = Path(__file__).parent / "static"
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


def make_app(session: Session, port: int, token: str) -> App:
    """The application behind its guard."""
    pages = [Route("/", _index), Route("/static/{name}", _static)]
    calls = [Route(path, _call(session, path), methods=["POST"]) for path in ROUTES]
    return Guard(Starlette(routes=[*pages, *calls]), port, token, page_paths, ROUTES)


def static_files() -> dict[str, Path]:
    """Name -> file. Names are looked up here and never joined to a path."""
    return {path.name: path for path in sorted(STATIC.iterdir()) if path.suffix in KINDS}


def page_paths() -> set[str]:
    """Everything that can be read without a token: nothing of the models."""
    return {"/", *(f"/static/{name}" for name in static_files())}


async def _index(request: Request) -> Response:
    return Response((STATIC / "index.html").read_bytes(), media_type="text/html")


async def _static(request: Request) -> Response:
    path = static_files()[request.path_params["name"]]
    return Response(path.read_bytes(), media_type=KINDS[path.suffix])


def _call(session: Session, path: str) -> Endpoint:
    async def call(request: Request) -> Response:
        try:
            body = _object(await request.body())
            found = await run_in_threadpool(answer, session, path, body)
        except (UserError, RunFailed) as error:
            return _error(400, str(error))
        except Exception as error:  # a mistake of ours: the page says so and goes on
            traceback.print_exc(file=sys.stderr)
            return _error(500, f"{type(error).__name__}: {error}")
        if isinstance(found, Content):
            return Response(found.data, media_type=found.kind)
        return JSONResponse(found)

    return call


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("body: expected JSON") from None
    if not isinstance(found, dict):
        raise UserError("body: expected a JSON object")
    return found


def _error(status: int, why: str) -> Response:
    return JSONResponse({"error": one_line(why)}, status)
