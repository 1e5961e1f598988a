"""Start the server on the loopback, and stop it by Ctrl-C."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable

from nps.errors import RunFailed, UserError, extra
from nps.viewer.session import Session

HOST = "127.0.0.1"


def serve(session: Session, port: int, token: str | None, announce: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Args:
        session: what is shown.
        port: 0 for any that is free.
        token: that the page must know; None for a new one.
        announce: called with the address of the page once the port is taken.
    """
    try:
        import uvicorn

        from nps.viewer.app import make_app
    except ImportError:
        raise UserError(f"nps view needs Starlette and uvicorn: {extra('viewer')}") from None
    token = secrets.token_urlsafe(32) if token is None else token
    with _listening(port) as listener:
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
        announce(f"http://{HOST}:{port}/#token={token}")
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


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
