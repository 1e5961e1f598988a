"""Start the server on the loopback, and stop it by Ctrl-C."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

from nps.errors import RunFailed, UserError, extra
from nps.viewer.session import Session

HOST = "127.0.0.1"


class Serving(NamedTuple):
    """A server that is ready to run: `server.run(sockets=[listener])`."""

    server: Any
    listener: socket.socket
    address: str
    """Of the page, with the token."""


def serve(session: Session, port: int, token: str | None, announce: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Args:
        session: what is shown.
        port: 0 for any that is free.
        token: that the page must know; None for a new one.
        announce: called with the address of the page once the port is taken.
    """
    server, listener, address = prepare(session, port, token)
    with listener, contextlib.suppress(KeyboardInterrupt):
        announce(address)
        server.run(sockets=[listener])


def prepare(session: Session, port: int = 0, token: str | None = None) -> Serving:
    """The server and its port, which is taken from now on."""
    try:
        import uvicorn

        from nps.viewer.app import make_app
    except ImportError:
        raise UserError(f"nps view needs Starlette and uvicorn: {extra('viewer')}") from None
    token = secrets.token_urlsafe(32) if token is None else token
    listener = _listening(port)
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        make_app(session, port, token),
        log_level="warning",
        access_log=False,
        http="h11",
        ws="none",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return Serving(uvicorn.Server(config), listener, f"http://{HOST}:{port}/#token={token}")


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise RunFailed(f"--port {port}: {error.strerror or error}") from None
    except OverflowError:
        listener.close()
        raise UserError(f"--port: got {port}, expected 0 to 65535") from None
    listener.listen(64)
    return listener
