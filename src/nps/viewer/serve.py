"""Start the server on the loopback, and stop it by Ctrl-C."""

from __future__ import annotations

import contextlib
import secrets
import socket
from typing import Any, NamedTuple

from nps.errors import RunFailed, UserError, extra
from nps.viewer.session import Session

HOST = "127.0.0.1"


class Serving(NamedTuple):
    """A port that is taken, and the secret that opens the page."""

    listener: socket.socket
    token: str

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    @property
    def address(self) -> str:
        """Of the page. What follows the # stays in the browser, and out of logs."""
        return f"http://{HOST}:{self.port}/#token={self.token}"


def prepare(port: int = 0, token: str | None = None) -> Serving:
    """Take a port; 0 for any that is free. The token is a new one unless given."""
    try:
        import starlette
        import uvicorn

        del starlette, uvicorn
    except ImportError:
        raise UserError(f"nps view needs Starlette and uvicorn: {extra('viewer')}") from None
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise RunFailed(f"--port {port}: {error.strerror or error}") from None
    listener.listen(64)
    return Serving(listener, secrets.token_urlsafe(32) if token is None else token)


def run(serving: Serving, session: Session) -> None:
    """Serve until interrupted."""
    with serving.listener, contextlib.suppress(KeyboardInterrupt):
        make_server(serving, session).run(sockets=[serving.listener])


def make_server(serving: Serving, session: Session) -> Any:
    """The server of uvicorn; `run(sockets=[listener])` runs it until its `should_exit` is True."""
    import uvicorn

    from nps.viewer.app import make_app

    config = uvicorn.Config(
        make_app(session, serving.port, serving.token),
        log_level="warning",
        access_log=False,
        http="h11",
        ws="none",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
