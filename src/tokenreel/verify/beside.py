"""Work beside a thread: on the blocks that it reads, each kind in order; and jobs of a pool, whose results come in order."""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from concurrent.futures import Future

Job = TypeVar("Job")
Result = TypeVar("Result")

AHEAD = 4
"""Blocks that may wait for a thread: what bounds memory."""


def in_order(
    jobs: Iterable[Job], begin: Callable[[Job], Future[Result]], room: int
) -> Generator[tuple[Job, Result], None, None]:
    """Yield every job with its result, in order; at most `room` are begun and not yet yielded, the rest when there is room.

    Raises what the first job that failed raised. Close it, and what is begun and not at work is given up.
    """
    waiting: deque[tuple[Job, Future[Result]]] = deque()
    try:
        for job in jobs:
            if len(waiting) == room:
                done, task = waiting.popleft()
                yield done, task.result()
            waiting.append((job, begin(job)))
        while waiting:
            done, task = waiting.popleft()
            yield done, task.result()
    finally:
        for _, task in waiting:
            task.cancel()


class Beside:
    """Does work at once, or with `threads` in a thread for each kind; a context manager that ends the threads."""

    def __init__(self, *, threads: bool) -> None:
        self._threads = threads
        self._stack = contextlib.ExitStack()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._pending: dict[str, deque[Future[None]]] = {}

    def do(self, kind: str, work: Callable[[], None]) -> None:
        """Do some work after all of its kind; waits while `AHEAD` of them are not done."""
        if not self._threads:
            work()
            return
        if kind not in self._pools:
            self._pools[kind] = self._stack.enter_context(ThreadPoolExecutor(1))
            self._pending[kind] = deque()
        pending = self._pending[kind]
        if len(pending) == AHEAD:
            pending.popleft().result()
        pending.append(self._pools[kind].submit(work))

    def wait(self, kind: str) -> None:
        """Wait for all work of a kind; raises what it raised."""
        pending = self._pending.get(kind, deque())
        while pending:
            pending.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
