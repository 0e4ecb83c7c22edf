"""A hub of one's own for tests: repositories of files in memory, over real http, with ranges, refusals and drops.

It answers what tokenreel asks of the Hugging Face hub: ``/api/datasets/REPO/revision/REV``, ``.../tree/REV``, and
``/datasets/REPO/resolve/REV/FILE``. Set ``HF_ENDPOINT`` to its address.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import urllib.parse
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

_API = re.compile(r"/api/(?P<kind>datasets|models)/(?P<repo>.+?)/(?P<what>revision|tree)/(?P<rev>[^/?]+)")
_FILE = re.compile(r"(?:/(?P<kind>datasets))?/(?P<repo>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<path>.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(eq=False)
class Repository:
    """Files of one repository at one commit."""

    files: dict[str, bytes]
    gated: bool = False
    private: bool = False
    revisions: tuple[str, ...] = ("main",)
    """Names that mean the one commit."""

    @property
    def commit(self) -> str:
        """40 hex digits that follow from the files."""
        digest = hashlib.sha1(usedforsecurity=False)
        for path, data in sorted(self.files.items()):
            digest.update(f"{path}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()


@dataclass(eq=False)
class HubServer:
    """A server in a thread; a context manager whose `url` is its address.

    `drops` says how many more answers break off in the middle; `requests` counts what was asked for.

    >>> with HubServer({"me/web": {"a.txt": b"hello"}}) as hub:
    ...     from tokenreel.store.http import request
    ...
    ...     request(f"{hub.url}/datasets/me/web/resolve/main/a.txt", begin=1, end=3).body
    b'el'
    """

    repositories: Mapping[str, Mapping[str, bytes] | Repository]
    drops: int = 0
    busy: int = 0
    """How many more answers are 503."""
    page: int = 1000
    """Files of one page of a listing."""
    requests: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._found = {
            name: one if isinstance(one, Repository) else Repository(dict(one))
            for name, one in self.repositories.items()
        }
        self._lock = threading.Lock()
        server = self

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.answer(self, body=True)

            def do_HEAD(self) -> None:
                server.answer(self, body=False)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def repository(self, name: str) -> Repository:
        """Return a repository, to change it."""
        return self._found[name]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, handler: Any, *, body: bool) -> None:
        """Answer one request."""
        path = urllib.parse.unquote(handler.path)
        with self._lock:
            self.requests[path.partition("?")[0]] += 1
            busy, self.busy = self.busy > 0, max(0, self.busy - 1)
        if busy:
            self._send(handler, 503, b"busy", {}, body=body)
            return
        api, file = _API.match(path), _FILE.match(path)
        if api is not None:
            self._api(handler, api["repo"], api["what"], api["rev"], body=body)
        elif file is not None:
            self._file(handler, file["repo"], file["rev"], file["path"].partition("?")[0], body=body)
        else:
            self._send(handler, 404, b"", {}, body=body)

    def _at(self, handler: Any, repo: str, revision: str, *, body: bool) -> Repository | None:
        found = self._found.get(repo)
        if found is None or revision not in (*found.revisions, found.commit):
            self._send(handler, 404, b"", {}, body=body)
            return None
        return found

    def _api(self, handler: Any, repo: str, what: str, revision: str, *, body: bool) -> None:
        found = self._at(handler, repo, revision, body=body)
        if found is None:
            return
        if found.private and "Authorization" not in handler.headers:
            self._send(handler, 401, b"", {}, body=body)
            return
        if what == "revision":
            facts = {"id": repo, "sha": found.commit, "private": found.private, "gated": found.gated}
            self._send(handler, 200, json.dumps(facts).encode(), {"Content-Type": "application/json"}, body=body)
            return
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(handler.path).query)
        first = int(query.get("cursor", ["0"])[0])
        paths = sorted(found.files)
        rows = [
            {
                "type": "file",
                "path": path,
                "size": len(found.files[path]),
                "lfs": {"oid": hashlib.sha256(found.files[path]).hexdigest()},
            }
            for path in paths[first : first + self.page]
        ]
        headers = {"Content-Type": "application/json"}
        if first + self.page < len(paths):
            more = f"{self.url}/api/datasets/{repo}/tree/{revision}?recursive=true&cursor={first + self.page}"
            headers["Link"] = f'<{more}>; rel="next"'
        self._send(handler, 200, json.dumps(rows).encode(), headers, body=body)

    def _file(self, handler: Any, repo: str, revision: str, path: str, *, body: bool) -> None:
        found = self._at(handler, repo, revision, body=body)
        if found is None:
            return
        if (found.gated or found.private) and "Authorization" not in handler.headers:
            self._send(handler, 403 if found.gated else 401, b"", {}, body=body)
            return
        if path not in found.files:
            self._send(handler, 404, b"", {}, body=body)
            return
        data, status, headers = found.files[path], 200, {"Accept-Ranges": "bytes"}
        asked = _RANGE.fullmatch(handler.headers.get("Range", ""))
        if asked is not None:
            begin, end = int(asked[1]), int(asked[2]) + 1 if asked[2] else len(data)
            if begin >= len(data):
                self._send(handler, 416, b"", {"Content-Range": f"bytes */{len(data)}"}, body=body)
                return
            headers["Content-Range"] = f"bytes {begin}-{min(end, len(data)) - 1}/{len(data)}"
            data, status = data[begin:end], 206
        self._send(handler, status, data, headers, body=body)

    def _send(self, handler: Any, status: int, data: bytes, headers: Mapping[str, str], *, body: bool) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if not body:
            return
        with self._lock:
            drop = self.drops > 0 and status in (200, 206) and len(data) > 1
            if drop:
                self.drops -= 1
        handler.wfile.write(data[: len(data) // 2] if drop else data)
        if drop:
            handler.close_connection = True
            handler.connection.close()
