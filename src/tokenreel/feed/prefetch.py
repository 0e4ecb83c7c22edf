"""Batches made ahead in one thread: no processes, no shared memory, no barriers; nothing to clean up after a kill.

The thread makes a batch for each credit it is given and ends at the first `_STOP`, at the end of the batches, or at an
error, which is handed over in the batch's place. It holds no reference to the feed: one that is dropped ends its thread.
Around a fork every thread stands still between two batches, so that no lock is held by a thread that the child lacks.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenreel.feed.batch import Batch

_GO, _STOP, _END = object(), object(), object()
_gates: weakref.WeakSet[_Gate] = weakref.WeakSet()
_held: list[_Gate] = []
_forking = threading.RLock()
"""Held around a fork: of two threads that fork, one waits."""
_threads: dict[threading.Thread, SimpleQueue[object]] = {}


class _Gate:
    """What a thread holds while it makes a batch."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()


class _Failed:
    """An error in a batch's place."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Prefetch:
    """Up to `depth` batches of an iterator, made ahead in a thread that starts at once."""

    def __init__(self, made: Iterator[Batch], depth: int) -> None:
        self._items: SimpleQueue[Any] = SimpleQueue()
        self._credits: SimpleQueue[object] = SimpleQueue()
        for _ in range(depth):
            self._credits.put(_GO)
        gate = _Gate()
        _gates.add(gate)
        self._thread = threading.Thread(
            target=_produce, args=(made, self._items, self._credits, gate), name="tokenreel-feed", daemon=True
        )
        weakref.finalize(self, self._credits.put, _STOP).atexit = False
        _threads[self._thread] = self._credits
        try:
            self._thread.start()
        except BaseException:
            _threads.pop(self._thread, None)
            raise

    def get(self) -> Batch | None:
        """Return the next batch, None at the end; raises what making it raised."""
        item = self._items.get()
        if type(item) is _Failed:
            raise item.error
        if item is _END:
            return None
        self._credits.put(_GO)
        batch: Batch = item
        return batch

    def stop(self) -> None:
        """End the thread, after the batch it is making at most."""
        self._credits.put(_STOP)
        if self._thread is not threading.current_thread():
            self._thread.join()


def _produce(made: Iterator[Batch], items: SimpleQueue[Any], credit: SimpleQueue[object], gate: _Gate) -> None:
    try:
        while credit.get() is _GO:
            with gate.lock:
                item = next(made, _END)
            items.put(item)
            if item is _END:
                break
            # A batch belongs to who takes it: its buffers must not wait for the next one here.
            del item
    except BaseException as error:  # noqa: BLE001 (handed over, whatever it is)
        items.put(_Failed(error))
    finally:
        _threads.pop(threading.current_thread(), None)


def _before_fork() -> None:
    _forking.acquire()
    for gate in sorted(_gates, key=id):
        gate.lock.acquire()
        _held.append(gate)


def _after_fork() -> None:
    while _held:
        _held.pop().lock.release()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking  # noqa: PLW0603
    _forking = threading.RLock()
    _held.clear()
    _gates.clear()
    _threads.clear()


@atexit.register
def _at_exit() -> None:
    """End every thread before the interpreter goes: one that is at work in a kernel would meet its end there."""
    threads = list(_threads.items())
    for _, credit in threads:
        credit.put(_STOP)
    for thread, _ in threads:
        thread.join()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
