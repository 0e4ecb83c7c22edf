"""Feeds for Grain: samples by number as a data source, or batches by step as an `IterDataset` with a state that is ours.

`sample_dataset` is a ``MapDataset`` over the order, already shuffled: what Grain's own batching, prefetching and elastic
iterator take. `feed_dataset` is an ``IterDataset`` of batches: its iterator's ``get_state`` is the feed's state, so any number
of hosts, batch size or loader goes on from it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from tokenreel.errors import UsageError, require
from tokenreel.feed.state import FORMAT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grain

    from tokenreel.feed.batch import Batch
    from tokenreel.feed.feed import Feed
else:
    grain = require("grain", extra="grain")

Element = dict[str, Any]


class SampleSource:
    """A ``RandomAccessDataSource`` over an order: ``source[i]`` is sample i as a row, a dict of numpy arrays.

    Takes what `open_feed` takes; each process opens its own. Its ``repr`` has the order's fingerprint, so that a Grain
    checkpoint is not taken for another order's. Raises `UsageError` (USE003) for an order without an end.
    """

    def __init__(self, run: Any, **options: Any) -> None:
        self._run, self._options = run, {"batch": 1, **options, "prefetch": 0}
        self._opened: Feed | None = None
        self._lock = threading.Lock()
        if self._feed.order.length is None:
            hint = "feed_dataset(run), or an order with an end"
            raise UsageError("USE003", "len()", expected="an order with an end", found=self._feed.order.name, hint=hint)

    @property
    def _feed(self) -> Feed:
        from tokenreel.feed.opening import open_feed

        if self._opened is None:
            # Grain reads with many threads, which all come here first.
            with self._lock:
                if self._opened is None:
                    feed = open_feed(self._run, **self._options)
                    if feed.order.length:
                        feed.rows([0])
                    self._opened = feed
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return {"_run": self._run, "_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _opened=None, _lock=threading.Lock())

    def __len__(self) -> int:
        """Return the samples of the order."""
        return self._feed.order.length or 0

    def __getitem__(self, sample: SupportsIndex) -> Element:
        """Return one sample's row."""
        return self._getitems([sample])[0]

    def _getitems(self, samples: Sequence[SupportsIndex]) -> list[Element]:
        """Return several rows gathered together: what Grain's batched reads ask for."""
        numbers = [int(one) for one in samples]
        if any(not 0 <= one < len(self) for one in numbers):
            raise IndexError(numbers)
        arrays = self._feed.rows(numbers)
        for name, array in arrays.items():
            if array.ndim == 0 or len(array) != len(numbers):
                expected = "a row policy whose arrays have an axis of rows"
                raise UsageError("USE003", name, expected=expected, found=f"shape {array.shape}")
        # Elements may be kept for long, and must not keep the whole batch.
        return [
            {**{k: v[n].copy() for k, v in arrays.items()}, "sample": np.int64(one)} for n, one in enumerate(numbers)
        ]

    def __repr__(self) -> str:
        """Return the order and its fingerprint; the same in every process."""
        order = self._feed.order
        return f"SampleSource({order.name}, {len(self)} samples, {order.fingerprint[:16]})"


def sample_dataset(run: Any, **options: Any) -> Any:
    """Return a ``MapDataset`` whose element i is sample i of the order: no shuffle is needed, the order is one."""
    return grain.MapDataset.source(SampleSource(run, **options))


def feed_dataset(run: Any, **options: Any) -> FeedIterDataset:
    """Return an ``IterDataset`` of a feed's batches; `options` are `open_feed`'s."""
    return FeedIterDataset(run, options)


class FeedIterDataset(grain.IterDataset):  # type: ignore[misc]
    """Batches of a feed, as dicts of numpy arrays with ``samples``, ``sources``, ``step`` and ``position``."""

    def __init__(self, run: Any, options: dict[str, Any]) -> None:
        super().__init__()
        self._run, self._feed_options = run, options
        self._begin, self._stride = 0, 1

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Take every n-th step, as a worker of ``mp_prefetch`` is told to."""
        if sequential_slice:
            raise UsageError("USE003", "slice", expected="every n-th step", found="steps in a row")
        self._begin, self._stride = self._begin + (sl.start or 0) * self._stride, (sl.step or 1) * self._stride

    def __iter__(self) -> FeedIterator:
        """Return an iterator from where the feed is opened: the start, or the option `state`."""
        from tokenreel.feed.opening import open_feed

        options = self._feed_options if self._stride == 1 else {**self._feed_options, "prefetch": 0, "ledger": None}
        return FeedIterator(open_feed(self._run, **options), self._begin, self._stride)


class FeedIterator(grain.DatasetIterator):  # type: ignore[misc]
    """Iterates a feed; its state is the feed's."""

    def __init__(self, feed: Feed, begin: int, stride: int) -> None:
        super().__init__()
        self.feed = feed
        self._begin, self._stride = begin, stride
        self._next = feed.step + begin
        self._last: Batch | None = None

    def __next__(self) -> Element:
        """Return the next batch."""
        if self._stride == 1:
            batch = next(self.feed)
        elif self.feed.steps.over(self._next):
            raise StopIteration
        else:
            self._last = batch = self.feed.batch_at(self._next)
            self._next += self._stride
        facts = {"samples": batch.samples.copy(), "sources": batch.sources.copy()}
        return {**batch.arrays, **facts, "step": np.int64(batch.step), "position": np.int64(batch.position)}

    def get_state(self) -> dict[str, Any]:
        """Return the state after the last batch returned; inside a worker with the step that is its next."""
        if self._stride == 1:
            return self.feed.state_dict()
        state = self.feed.state_dict() if self._last is None else self.feed.state_after(self._last)
        return {"feed": state, "next": self._next}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on after a state: a feed's, whatever made it, or one of a worker among as many."""
        own = state.get("format") == FORMAT
        if not own and self._stride == 1:
            raise UsageError("USE003", "state", expected="a feed's state", found=", ".join(map(str, state)))
        self.feed.load_state_dict(state if own else state["feed"])
        self._last = None
        self._next = self.feed.step + self._begin if own else int(state["next"])

    def close(self) -> None:
        """Give the thread, buffers and files back."""
        self.feed.close()
