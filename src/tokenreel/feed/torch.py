"""Feeds for PyTorch: batches in the order of steps whatever the number of workers, and the state of the last one returned.

`open_loader` is all that most need. `FeedDataset` and `SampleDataset` are for a ``DataLoader`` or ``StatefulDataLoader`` of
one's own, the first with ``batch_size=None``. Ranks are those of the default process group unless given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tokenreel.errors import require
from tokenreel.feed.torch_batch import TorchBatch, tensors
from tokenreel.feed.torch_data import FeedDataset, SampleDataset, StepSampler, feed_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch
    from torch.utils import data

    from tokenreel.feed.feed import Feed
else:
    torch = require("torch", extra="torch")
    data = require("torch.utils.data", extra="torch")

__all__ = ["FeedDataset", "FeedLoader", "SampleDataset", "StepSampler", "TorchBatch", "feed_state", "open_loader"]


class FeedLoader:
    """Iterates a `FeedDataset` in this process or in workers, and knows the state of the last batch it returned.

    ``iter(loader)`` goes on where the loader stands: after a ``break``, with the batch that follows. Made by `open_loader`.
    """

    def __init__(self, dataset: FeedDataset, *, workers: int = 0, pin_memory: bool = False, **options: Any) -> None:
        self.dataset, self.workers = dataset, workers
        self._pin = pin_memory and torch.cuda.is_available()
        self._options = options

    @property
    def feed(self) -> Feed:
        """The feed of this process: its step, position, order and policy."""
        return self.dataset.opened.feed

    def __iter__(self) -> Iterator[TorchBatch]:
        """Yield the batches that are left."""
        if not self.workers:
            yield from self.dataset
            return
        feed = self.feed
        loader = data.DataLoader(
            self.dataset, batch_size=None, num_workers=self.workers, pin_memory=self._pin, **self._options
        )
        for batch in loader:
            feed.took(batch)
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch returned, whatever workers have made ahead: small, and JSON takes it."""
        return self.feed.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after a state of any world, workers and batch size. Raises `StateError` as `Feed.load_state_dict`."""
        self.feed.load_state_dict(state)

    def close(self) -> None:
        """Give threads, buffers and files back."""
        self.feed.close()

    def __enter__(self) -> Self:
        """Return the loader itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the loader."""
        self.close()


def open_loader(
    run: Any,
    *,
    workers: int = 0,
    pin_memory: bool = False,
    prefetch: int = 2,
    loader: Mapping[str, Any] | None = None,
    cp_rank: int = 0,
    cp_size: int = 1,
    **options: Any,
) -> FeedLoader:
    """Return a loader of `TorchBatch`; `options` are `open_feed`'s (batch, rank, world, state, ledger, ...).

    Without `workers` one thread makes `prefetch` batches ahead, which is enough unless a training loop holds the GIL; with
    workers each process makes as many. `pin_memory` gathers straight into pinned memory where there is a GPU. `loader` is
    for the ``DataLoader`` (``multiprocessing_context``, ...). Errors of opening are raised here, not in a worker.
    """
    more = dict(loader or {})
    if workers:
        more.setdefault("prefetch_factor", max(1, prefetch))
    depth = 0 if workers else prefetch
    if pin_memory and not workers and torch.cuda.is_available():
        options["out"] = lambda rows: _pinned(made.feed, rows, options.get("dtype", "int64"))
    dataset = FeedDataset(run, cp_rank=cp_rank, cp_size=cp_size, prefetch=depth, **options)
    made: FeedLoader = FeedLoader(dataset, workers=workers, pin_memory=pin_memory, **more)
    _ = made.feed
    return made


def _pinned(feed: Feed, rows: int, dtype: Any) -> dict[str, Any]:
    """Return buffers for a batch in pinned memory; torch keeps and reuses what is let go."""
    out = {}
    for name, (shape, kind) in feed.policy.layout(rows, feed.order.row_tokens, dtype).items():
        like = tensors({name: _zeros(kind)})[name].dtype
        out[name] = torch.empty(shape, dtype=like, pin_memory=True).numpy()
    return out


def _zeros(kind: Any) -> Any:
    import numpy as np

    return np.zeros(0, dtype=kind)
