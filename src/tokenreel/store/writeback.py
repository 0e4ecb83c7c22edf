"""Bring a file to the disk while it is being written, so that the sync at its end has little left to wait for."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

EVERY = 1 << 23
"""Bytes written after which the system is asked again."""
_THREADS = 2

_pool: ThreadPoolExecutor | None = None
_lock = threading.Lock()


class WriteBack:
    """Syncs a growing file now and then from a thread beside the writer's, which never waits for it.

    It promises nothing: the sync that makes a file durable, and says what went wrong, is the writer's own at the end.
    """

    __slots__ = ("_asked", "_path", "_since")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._since = 0
        self._asked: Future[None] | None = None

    def wrote(self, count: int) -> None:
        """Say that so many bytes more were written."""
        self._since += count
        if self._since >= EVERY and (self._asked is None or self._asked.done()):
            self._since = 0
            self._asked = _threads().submit(_sync, self._path)


def _threads() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603 (one for all files, made when a large one is written)
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="writeback")
        return _pool


def _sync(path: Path) -> None:
    # A descriptor of its own: what one descriptor was told of an error, another still hears.
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(handle)
        finally:
            os.close(handle)
