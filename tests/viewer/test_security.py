"""Who may talk to the server: only the page that knows the token, on this machine.

Every check is made against the real server on a port of its own.
"""

import asyncio
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from nps.viewer import app, guard
from nps.viewer.routes import ROUTES
from nps.viewer.session import Session
from tests.viewer import fake
from tests.viewer.serving import TOKEN, served

GOOD = json.dumps({}).encode()


@pytest.fixture(scope="module")
def client():
    with served(Session([fake.FakeRun(fake.FakeWorkbench())])) as found:
        yield found


def raw(client, request: bytes) -> bytes:
    """What comes back for these very bytes."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as line:
        line.sendall(request)
        parts = []
        while part := line.recv(65536):
            parts.append(part)
    return b"".join(parts)


def refused(answer, status: int) -> str:
    """A refusal: one line of JSON, under the same strict headers as everything else."""
    assert answer.status == status, answer
    assert answer.headers.items() >= guard.HEADERS.items()
    error = answer.json["error"]
    assert error
    assert "\n" not in error
    assert TOKEN not in error
    return error


def test_the_page_is_answered(client):
    for answer in (client.send("POST", "/api/models", GOOD), client.send("GET", "/")):
        assert answer.status == 200
        assert answer.headers.items() >= guard.HEADERS.items()
        assert "server" not in answer.headers
        assert not any(name.startswith("access-control") for name in answer.headers)


def test_the_policy_allows_nothing_from_elsewhere():
    parts = [part.split() for part in guard.POLICY.split("; ")]
    policy = {name: values for name, *values in parts}
    assert policy["default-src"] == ["'none'"]
    assert policy["frame-ancestors"] == ["'none'"]
    allowed = {value for values in policy.values() for value in values}
    assert allowed == {"'none'", "'self'", "data:", "blob:"}


def test_only_the_loopback_listens(client):
    assert client.address.startswith("http://127.0.0.1:")
    with pytest.raises(OSError), socket.socket() as other:  # the port is taken on no other address
        other.connect(("127.0.0.2", client.port))


@pytest.mark.parametrize(
    "token", [None, "", "Bearer", "Bearer ", "Bearer wrong", TOKEN, f"bearer {TOKEN}",
              f"Bearer {TOKEN} ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ü"],
)  # fmt: skip
@pytest.mark.parametrize("route", ["/api/models", "/api/frames"])
def test_no_token_no_answer(client, token, route):
    if token == f"Bearer {TOKEN} ":  # spaces around a value are no part of it
        token = f"Bearer  {TOKEN}"
    refused(client.send("POST", route, GOOD, {"Authorization": token}), 401)


def test_the_token_is_not_read_from_the_address(client):
    path = f"/api/models?token={TOKEN}"
    refused(client.send("POST", path, GOOD, {"Authorization": None}), 401)


def test_tokens_are_new_and_long():
    from nps.viewer.serve import prepare

    found = set()
    for _ in range(2):
        serving = prepare()
        serving.listener.close()
        found.add(serving.token)
    assert len(found) == 2
    assert all(len(token) >= 43 for token in found)  # 32 bytes


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "localhost", "127.0.0.1:1", "0.0.0.0:{port}", "[::1]:{port}",
     "127.0.0.1:{port}.evil.example", "localhost.evil.example:{port}", "LOCALHOST:{port}", "",
     "evil.example:{port}", "user@127.0.0.1:{port}", "127.0.0.1:{port}/"],
)  # fmt: skip
@pytest.mark.parametrize(("method", "path"), [("POST", "/api/models"), ("GET", "/")])
def test_other_hosts_are_refused(client, host, method, path):
    headers = {"Host": host.format(port=client.port)}
    refused(client.send(method, path, GOOD, headers), 421)


def test_localhost_is_this_host(client):
    host = f"localhost:{client.port}"
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert client.send("POST", "/api/models", GOOD, headers).status == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1", "https://127.0.0.1:{port}",
     "http://127.0.0.1:{port}.evil.example", "http://localhost:{port}", "http://127.0.0.1:1",
     "", "http://127.0.0.1:{port}/"],
)  # fmt: skip
def test_other_origins_are_refused(client, origin):
    headers = {"Origin": origin.format(port=client.port)}
    refused(client.send("POST", "/api/models", GOOD, headers), 403)
    refused(client.send("GET", "/", None, headers), 403)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_other_sites_are_refused(client, site):
    for method, path in (("POST", "/api/models"), ("GET", "/")):
        refused(client.send(method, path, GOOD, {"Sec-Fetch-Site": site}), 403)
    for ours in ("same-origin", "none"):
        headers = {"Sec-Fetch-Site": ours}
        assert client.send("POST", "/api/models", GOOD, headers).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused(client, method):
    for route in ROUTES:
        answer = client.send(method, route, None if method == "TRACE" else GOOD)
        assert answer.status == 405
    if method != "GET":
        assert client.send(method, "/").status == 405
        assert client.send(method, "/static/api.js").status in (404, 405)


def test_a_question_before_a_foreign_call_is_not_answered(client):
    """Without CORS headers a browser sends no JSON of another page here."""
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    refused(client.send("OPTIONS", "/api/models", None, headers), 403)


@pytest.mark.parametrize(
    "path",
    ["/static/../guard.py", "/static/..%2fguard.py", "/static/%2e%2e/guard.py", "/../guard.py",
     "/static/....//guard.py", "/static//etc/passwd", "/static/..\\guard.py", "/static/",
     "/static/api.js%00.css", "/static/index.html", "/static/api.js/", "//etc/passwd",
     "/static/subfolder/x.js", "/etc/passwd", "/api", "/api/", "/api/models/", "/API/models",
     "/api/../api/models", "/static/%252e%252e%252fguard.py", "/docs", "/openapi.json"],
)  # fmt: skip
def test_there_is_no_way_to_other_files(client, path):
    for method in ("GET", "POST"):
        line = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n"
        line += f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        found = raw(client, f"{line}Content-Length: 2\r\n\r\n{{}}".encode())
        assert found.startswith(b"HTTP/1.1 404 "), found
        assert b"import" not in found


def test_an_absolute_address_changes_nothing(client):
    """A proxy's form of a request: the host that counts is in the header."""
    line = b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    assert raw(client, line % client.port).startswith(b"HTTP/1.1 421 ")


def test_a_header_twice_is_refused(client):
    host = b"Host: 127.0.0.1:%d\r\n" % client.port
    for twice in (host * 2, host + b"Origin: x\r\nOrigin: y\r\n"):
        found = raw(client, b"GET / HTTP/1.1\r\n" + twice + b"\r\n")
        assert found.startswith(b"HTTP/1.1 400 "), found
    found = raw(client, b"GET / HTTP/1.1\r\n\r\n")
    assert found.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 421 "))  # without a host


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded",
                                  "multipart/form-data", "application/jsonx", ""])  # fmt: skip
def test_only_json_is_read(client, kind):
    refused(client.send("POST", "/api/models", GOOD, {"Content-Type": kind}), 415)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"1", b"null", b"\xff", b"[" * 100_000, b'{"a":' * 50_000]
)
def test_only_json_objects_are_read(client, body):
    assert "expected" in refused(client.send("POST", "/api/models", body), 400)


def test_charset_may_be_named(client):
    headers = {"Content-Type": "application/json; charset=utf-8"}
    assert client.send("POST", "/api/models", GOOD, headers).status == 200


def test_large_bodies_are_refused(client):
    large = b'{"a":"' + b"x" * guard.MOST_BYTES + b'"}'
    refused(client.send("POST", "/api/models", large), 413)
    head = b"POST /api/models HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % client.port
    head += b"Authorization: Bearer %s\r\nContent-Type: application/json\r\n" % TOKEN.encode()
    # Only announced: refused before it is sent.
    found = raw(client, head + b"Content-Length: 99999999999\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 413 ")
    # Not announced: counted as it comes.
    chunks = (b"%x\r\n%s\r\n" % (60_000, b" " * 60_000)) * 20 + b"0\r\n\r\n"
    found = raw(client, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert found.startswith(b"HTTP/1.1 413 ")
    small = b'2\r\n{}\r\n0\r\n\r\n'  # fmt: skip
    head += b"Connection: close\r\n"
    found = raw(client, head + b"Transfer-Encoding: chunked\r\n\r\n" + small)
    assert found.startswith(b"HTTP/1.1 200 ")


def test_no_more_is_read_than_needed():
    """A body without end is refused and left."""
    sent, given = [], []

    async def receive():
        given.append(100_000)
        return {"type": "http.request", "body": b" " * given[-1], "more_body": True}

    async def send(message):
        sent.append(message)

    headers = {"host": "localhost:1", "authorization": f"Bearer {TOKEN}"}
    headers |= {"content-type": "application/json", "transfer-encoding": "chunked"}
    scope = {"type": "http", "method": "POST", "path": "/api/models"}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
    run(guarded()(scope, receive, send))
    assert sent[0]["status"] == 413
    assert guard.MOST_BYTES < sum(given) < guard.MOST_BYTES + 1.1 * guard.MOST_DRAINED


def test_bodies_of_refused_requests_are_not_kept(client):
    """And the connection closes: what follows a refusal is not read as another request."""
    line = b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n"
    inner = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % client.port
    found = raw(client, line % (client.port, len(inner)) + inner + inner)
    assert found.count(b"HTTP/1.1 ") == 1


def test_sockets_are_not_served(client):
    line = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    line = line.replace(b"Connection: Upgrade", b"Connection: Upgrade, close")
    line += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    assert b"101" not in raw(client, line % client.port).split(b"\r\n")[0]
    with pytest.raises(RuntimeError, match="websocket is not served"):
        run(guarded()({"type": "websocket", "path": "/", "headers": []}, None, None))


def run(call):
    """In a thread of its own: a browser of other tests leaves an event loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, call).result()


def guarded():
    return app.make_app(Session([]), 1, TOKEN)


def test_every_route_is_behind_the_guard(client):
    """The routes of the application and those that the guard knows are the same."""
    application = guarded()
    assert isinstance(application, guard.Guard)
    paths = {route.path: route.methods for route in application.app.routes}
    assert set(paths) == {"/", "/static/{name}", *ROUTES}
    for path, methods in paths.items():
        assert methods == ({"GET", "HEAD"} if path in ("/", "/static/{name}") else {"POST"})
    assert application.routes == set(ROUTES)
    assert all(path.startswith("/api/") for path in ROUTES)
    assert application.pages() >= {"/"}
    assert all(re.fullmatch(r"/|/static/[\w-]+\.(js|css|svg)", path) for path in app.page_paths())
    for route in ROUTES:
        refused(client.send("POST", route, GOOD, {"Authorization": None}), 401)


def test_pages_say_nothing_of_the_models(client):
    for path in app.page_paths():
        answer = client.send("GET", path)
        assert answer.status == 200
        assert b"fake-grid" not in answer.body
        assert TOKEN.encode() not in answer.body


def test_a_mistake_of_ours_is_one_line_and_the_server_goes_on(client, monkeypatch, capsys):
    def broken(session, body):
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setitem(ROUTES, "/api/models", broken)
    error = refused(client.send("POST", "/api/models", GOOD), 500)
    assert error == "ZeroDivisionError: by\\nzero"
    monkeypatch.undo()
    assert client.send("POST", "/api/models", GOOD).status == 200
    assert "ZeroDivisionError" in capsys.readouterr().err
