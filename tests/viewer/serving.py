"""The real server in a thread, and requests to it that say exactly what they send."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from nps.viewer.serve import make_server, prepare
from nps.viewer.session import Session

TOKEN = "a-token-of-the-tests"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Talks to a server; by default as the page does."""

    def __init__(self, address: str) -> None:
        self.address, self.port = address, int(address.split(":")[2].split("/")[0])

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """A request with these headers; None leaves out one that is sent by default."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}"}
        if path.startswith("/api"):
            given |= {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        given |= headers or {}
        sent = {name: value for name, value in given.items() if value is not None}
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        content = answer.read()
        connection.close()
        return Answer(answer.status, found, content)

    def call(self, route: str, **body: Any) -> Any:
        """A call that must succeed."""
        answer = self.send("POST", f"/api/{route}", json.dumps(body).encode())
        assert answer.status == 200, answer.body
        return answer.json if answer.headers["content-type"] == "application/json" else answer.body


@contextmanager
def served(session: Session, token: str = TOKEN) -> Iterator[Client]:
    serving = prepare(token=token)
    server = make_server(serving, session)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [serving.listener]})
    thread.start()
    try:
        yield Client(serving.address)
    finally:
        server.should_exit = True
        thread.join()
        serving.listener.close()
