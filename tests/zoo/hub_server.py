"""A small stand-in for the Hugging Face hub on the loopback: what the real client needs to make a
repository, commit files to it, and download them."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_token_of_the_test"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    def __init__(self, address: str) -> None:
        self.address = address
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.requests: list[str] = []


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"POST {path}")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, {"error": "Invalid credentials"})
        elif path == "/api/repos/create":
            asked = json.loads(body)
            owner = asked.get("organization")
            name = f"{owner}/{asked['name']}" if owner else asked["name"]
            self.hub.repos.setdefault(name, {})
            if asked.get("private") or asked.get("visibility") == "private":
                self.hub.private.add(name)
            self.answer(200, {"url": f"{self.hub.address}/{name}", "name": name})
        elif path == "/api/validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self.answer(200, {"files": files})
        elif "/commit/" in path:
            repo = path.removeprefix("/api/models/").split("/commit/")[0]
            for line in filter(None, body.splitlines()):
                entry = json.loads(line)
                if entry["key"] == "file":
                    file = entry["value"]
                    self.hub.repos[repo][file["path"]] = base64.b64decode(file["content"])
            url = f"{self.hub.address}/{repo}/commit/{COMMIT}"
            self.answer(200, {"success": True, "commitOid": COMMIT, "commitUrl": url})
        else:
            self.answer(404, {"error": "Not found"})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        repo, _, rest = path.strip("/").partition("/resolve/")
        name = rest.partition("/")[2]
        hidden = repo in self.hub.private and TOKEN not in self.headers.get("Authorization", "")
        if repo not in self.hub.repos or hidden:
            self.answer(401, {"error": "Repository not found"}, code="RepoNotFound")
        elif name not in self.hub.repos[repo]:
            self.answer(404, {"error": "Entry not found"}, code="EntryNotFound")
        else:
            self.send(200, self.hub.repos[repo][name])

    def answer(self, status: int, found: object, code: str = "") -> None:
        self.send(status, json.dumps(found).encode(), "application/json", code)

    def send(self, status: int, data: bytes, kind: str = "text/plain", code: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if code:
            self.send_header("X-Error-Code", code)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running():
    """A hub without repositories, while inside."""
    handler = type("OneHub", (Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.hub = Hub(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield handler.hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
