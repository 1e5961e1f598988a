"""What a request must be before anything else sees it; every other one is refused.

The page has no password but a token in its address, and every other page in the same browser can
send requests to this machine. So a request must name this server as its host (no foreign name that
resolves to it), must not come from another site, must be for a known route by its one method and,
for the interface, carry the token and a small body of JSON.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BYTES = 1_000_000
"""Of a request's body."""
MOST_DRAINED = 16_000_000
"""Of a body that is refused: read and forgotten, for a client that still sends sees no answer."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Refused(Exception):
    """A request that goes no further: its status, and why in a line."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Guard:
    """The outermost layer of the server.

    Args:
        app: what answers the requests that pass.
        port: that the server listens at.
        token: that requests of the interface carry.
        pages: the paths that may be read, as they are now.
        routes: the paths of the interface.
    """

    def __init__(
        self,
        app: App,
        port: int,
        token: str,
        pages: Callable[[], Collection[str]],
        routes: Collection[str],
    ) -> None:
        self.app, self.pages, self.routes = app, pages, frozenset(routes)
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}
        self._token = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # there are no sockets
            raise RuntimeError(f"a connection of type {scope['type']} is not served")
        guarded = _with_headers(send)
        try:
            self._check(scope)
            body = await _body(receive)
        except Refused as refused:
            await _drain(scope, receive)
            await _refuse(guarded, refused)
            return
        await self.app(scope, _again(body, receive), guarded)

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        host = _only(headers, b"host")
        if host not in self._hosts:
            raise Refused(421, "Host: open the address that nps view printed")
        origin = _only(headers, b"origin")
        if origin is not None and origin != b"http://" + host:
            raise Refused(403, "Origin: requests from other pages are refused")
        if _only(headers, b"sec-fetch-site") not in (None, b"same-origin", b"none"):
            raise Refused(403, "from another site: paste the address into the address bar")
        path, method = scope["path"], scope["method"]
        if path in self.routes:
            self._check_call(headers, method)
        elif path not in self.pages():
            raise Refused(404, "no such page")
        elif method != "GET":
            raise Refused(405, "expected GET")

    def _check_call(self, headers: Any, method: str) -> None:
        given = _only(headers, b"authorization") or b""
        if not secrets.compare_digest(given, self._token):
            raise Refused(401, "no valid token: open the address that nps view printed")
        if method != "POST":
            raise Refused(405, "expected POST")
        kind = (_only(headers, b"content-type") or b"").split(b";")[0].strip()
        if kind.lower() != b"application/json":
            raise Refused(415, "expected application/json")
        length = _only(headers, b"content-length") or b"0"
        if not length.isdigit() or len(length) > 12 or int(length) > MOST_BYTES:
            raise Refused(413, f"expected at most {MOST_BYTES} bytes")


def _only(headers: Any, name: bytes) -> bytes | None:
    """The value of a header. Twice the same header is refused: parts of the server might read one
    and parts the other."""
    found = [bytes(value) for key, value in headers if key.lower() == name]
    if len(found) > 1:
        raise Refused(400, f"{name.decode()}: expected once")
    return found[0] if found else None


async def _body(receive: Receive) -> bytes:
    """The whole body, counted as it comes: a length may be missing or wrong."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "the request ended early")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BYTES:
            raise Refused(413, f"expected at most {MOST_BYTES} bytes")
        if not message.get("more_body", False):
            return b"".join(parts)


async def _drain(scope: Scope, receive: Receive) -> None:
    """Read the rest of a refused body, unless it is announced as too long even for that."""
    lengths = [value for key, value in scope["headers"] if key.lower() == b"content-length"]
    left = MOST_DRAINED
    if any(not value.isdigit() or int(value[:20]) > MOST_DRAINED for value in lengths):
        return
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if not message.get("more_body", False):
            return


def _again(body: bytes, receive: Receive) -> Receive:
    """The body as a single message, and then whatever else comes."""
    waiting = [body]

    async def once() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return once


def _with_headers(send: Send) -> Send:
    ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            names = {name for name, _ in ours}
            kept = [pair for pair in message.get("headers", []) if pair[0].lower() not in names]
            message = {**message, "headers": kept + ours}
        await send(message)

    return sending


async def _refuse(send: Send, refused: Refused) -> None:
    body = json.dumps({"error": refused.why}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
