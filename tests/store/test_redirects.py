"""Redirects of http stores: followed, with ranges, and the login stays with the server that it is for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tokenreel.store.http import HttpReader

DATA = b"0123456789"


@contextmanager
def server(elsewhere: str = "") -> Iterator[tuple[str, list[tuple[str, str | None, str | None]]]]:
    """Serve `DATA` at ``/file``; ``/here`` sends on to it, ``/there`` to the other server. Yields (address, what was asked)."""
    asked: list[tuple[str, str | None, str | None]] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization"), self.headers.get("Range")))
            if self.path == "/file":
                self.send_response(206)
                self.send_header("Content-Length", "3")
                self.end_headers()
                self.wfile.write(DATA[2:5])
                return
            self.send_response(302)
            self.send_header("Location", "/file" if self.path == "/here" else f"{elsewhere}/file")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    found = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{found.server_address[1]}", asked
    finally:
        found.shutdown()
        found.server_close()
        thread.join()


@pytest.mark.parametrize(("path", "kept"), [("here", True), ("there", False)])
def test_the_login_is_not_sent_on(path: str, kept: bool) -> None:
    with server() as (other, asked_there), server(other) as (hub, asked_here):
        reader = HttpReader(f"{hub}/{path}", len(DATA), {"Authorization": "Bearer secret"})
        assert reader._range(2, 5) == DATA[2:5]
        assert asked_here[0] == (f"/{path}", "Bearer secret", "bytes=2-4")
        followed = asked_here[1] if kept else asked_there[0]
        assert followed == ("/file", "Bearer secret" if kept else None, "bytes=2-4")
