"""A read-only store over http(s): ranges of files below one address; a listing only where someone gives it.

Every request is tried again when the connection drops, the server is busy (429, 5xx) or an answer is short. 401 and 403
are `StorageError` STO020: the file is there, and somebody has to accept terms or log in.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenreel.errors import StorageError
from tokenreel.store.base import Entry, bounds_checked, path_checked, prefix_checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

TRIES = 4
WAIT_SECONDS = 0.2
"""Before the second try; doubled before each further one."""
ANSWER_SECONDS = 30.0
BLOCK = 1 << 20
_AGAIN = (408, 429, 500, 502, 503, 504)
_REFUSED = (401, 403)
_GONE = (404, 410)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and keeps a login to the server that it is for: hubs send readers on to other servers."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None:
            before, after = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(following.full_url)
            if (before.scheme, before.netloc) != (after.scheme, after.netloc):
                following.remove_header("Authorization")
        return following


def request(
    url: str, *, method: str = "GET", begin: int | None = None, end: int | None = None, headers: Mapping[str, str] = {}
) -> Answer:
    """Return a server's answer, whole; `begin` and `end` ask for a range of bytes, [begin, end).

    Raises `StorageError`: STO001 for 404 and 410, STO020 for 401 and 403, STO002 for everything else that fails
    `TRIES` times.
    """
    asked = {"User-Agent": "tokenreel", **headers}
    if begin is not None:
        asked["Range"] = f"bytes={begin}-" if end is None else f"bytes={begin}-{end - 1}"
    problem = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(WAIT_SECONDS * 2 ** (attempt - 1))
        try:
            with urllib.request.build_opener(_Redirects).open(
                urllib.request.Request(url, headers=asked, method=method),  # noqa: S310 (http alone: see HttpStore)
                timeout=ANSWER_SECONDS,
            ) as reply:
                body = reply.read()
                answer = Answer(reply.status, {k.lower(): v for k, v in reply.headers.items()}, body)
        except urllib.error.HTTPError as error:
            with contextlib.closing(error):
                if error.code in _REFUSED:
                    raise StorageError("STO020", path=url, found=f"status {error.code}") from None
                if error.code in _GONE:
                    raise StorageError("STO001", path=url, found=f"status {error.code}") from None
                problem = f"status {error.code}"
                if error.code not in _AGAIN:
                    break
        except (OSError, http.client.HTTPException) as error:
            problem = str(getattr(error, "reason", None) or error) or type(error).__name__
        else:
            said = answer.headers.get("content-length")
            if method == "HEAD" or said is None or int(said) == len(body):
                return answer
            problem = f"{len(body)} of {said} bytes came"
    raise StorageError("STO002", f"could not read: {problem}", path=url, hint=f"curl -I {url}")


def request_json(url: str, headers: Mapping[str, str] = {}) -> tuple[Any, Mapping[str, str]]:
    """Return (parsed JSON, headers) of an answer; raises as `request`, and STO002 for what is no JSON."""
    answer = request(url, headers=headers)
    try:
        return json.loads(answer.body), answer.headers
    except ValueError as error:
        raise StorageError("STO002", f"not JSON: {error}", path=url) from error


@dataclass(eq=False)
class HttpStore:
    """Files below `base`; `listing` is what is there, where that is known (a plain server cannot be asked)."""

    base: str
    listing: Sequence[Entry] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if urllib.parse.urlsplit(self.base).scheme not in ("http", "https"):
            raise StorageError("STO006", path=self.base, expected="http:// or https://")

    @property
    def root(self) -> str:
        """The address."""
        return self.base.rstrip("/")

    def url(self, path: str) -> str:
        """Return a file's address."""
        return f"{self.root}/{urllib.parse.quote(path_checked(path, self.root))}"

    def list(self, prefix: str = "") -> list[Entry]:
        """Return the listing; raises `StorageError` (STO021) where there is none."""
        prefix_checked(prefix, self.root)
        if self.listing is None:
            raise StorageError("STO021", path=self.root)
        chosen = (entry for entry in self.listing if entry.path.startswith(prefix))
        return sorted(chosen, key=lambda entry: os.fsencode(entry.path))

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        try:
            self.size(path)
        except StorageError as error:
            if error.code == "STO001":
                return False
            raise
        return True

    def size(self, path: str) -> int:
        """Return a file's size; raises `StorageError` (STO001, STO002, STO020)."""
        answer = request(self.url(path), method="HEAD", headers=self.headers)
        said = answer.headers.get("x-linked-size") or answer.headers.get("content-length")
        if said is None or not said.isdigit():
            raise StorageError("STO002", "could not read: the server does not say how large it is", path=self.url(path))
        return int(said)

    def reader(self, path: str) -> HttpReader:
        """Open a file for exact reads."""
        return HttpReader(self.url(path), self.size(path), self.headers)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        return request(self.url(path), headers=self.headers).body

    def write(self, path: str, data: bytes) -> None:  # noqa: ARG002 (the protocol's)
        """Refuse: nothing is written over http."""
        raise StorageError("STO003", "could not write: http is for reading", path=self.url(path))

    def remove(self, path: str) -> None:
        """Refuse, as `write`."""
        raise StorageError("STO003", "could not write: http is for reading", path=self.url(path))


class HttpReader:
    """Exact reads from one file over http, by ranges; what was read last is kept for the next read beside it."""

    __slots__ = ("_at", "_headers", "_kept", "path", "size")

    def __init__(self, url: str, size: int, headers: Mapping[str, str]) -> None:
        self.path = url
        self.size = size
        self._headers = headers
        self._at, self._kept = 0, b""

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes; raises `StorageError` (STO002, STO004, STO005)."""
        bounds_checked(self.path, self.size, offset, length)
        low = offset - self._at
        if not 0 <= low <= len(self._kept) - length:
            end = min(self.size, offset + max(length, BLOCK))
            self._kept, self._at = self._range(offset, end), offset
            low = 0
        return self._kept[low : low + length]

    def _range(self, begin: int, end: int) -> bytes:
        if begin == end:
            return b""
        answer = request(self.path, begin=begin, end=end, headers=self._headers)
        body = answer.body
        if answer.status == http.client.OK:  # the server does not know ranges
            body = body[begin:end]
        if len(body) != end - begin:
            found = f"{len(body)} bytes"
            raise StorageError("STO004", path=self.path, expected=f"{end - begin} bytes", found=found)
        return body

    def array(self, dtype: npt.DTypeLike, offset: int, count: int) -> npt.NDArray[Any]:
        """Return `count` items from byte `offset` as a read-only array."""
        import numpy as np

        kind = np.dtype(dtype)
        return np.frombuffer(self.read(offset, count * kind.itemsize), dtype=kind)

    def blocks(self, step: int = 1 << 22) -> Iterator[bytes]:
        """Yield the whole file."""
        for begin in range(0, self.size, step):
            yield self._range(begin, min(self.size, begin + step))

    def close(self) -> None:
        """Do nothing: there is no connection."""
