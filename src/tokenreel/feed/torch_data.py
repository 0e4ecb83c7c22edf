"""Feeds as PyTorch data sets: batches by step (`FeedDataset`), and samples by number (`SampleDataset`, `StepSampler`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.errors import UsageError, require
from tokenreel.feed.context_parallel import cut
from tokenreel.feed.state import FORMAT
from tokenreel.feed.torch_batch import Opened, TorchBatch, tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch
    from torch.utils import data

    from tokenreel.feed.batch import Batch
else:
    torch = require("torch", extra="torch")
    data = require("torch.utils.data", extra="torch")


class FeedDataset(data.IterableDataset):  # type: ignore[misc]
    """Batches of a feed: for ``DataLoader(dataset, batch_size=None, num_workers=...)``.

    Takes what `open_feed` takes; `rank` and `world` are those of the default process group where they are left out.
    With W workers, worker w makes every W-th step, so that the loader returns steps in order. `state_dict` and
    `load_state_dict` are what `StatefulDataLoader` asks for; `feed_state` takes our own state out of its.
    """

    def __init__(self, run: Any, *, cp_rank: int = 0, cp_size: int = 1, **options: Any) -> None:
        self.opened = Opened(run, cp_rank, cp_size, options)
        self._first: int | None = None
        self._last: Batch | None = None
        self._workers = 1

    def __iter__(self) -> Iterator[TorchBatch]:
        """Yield the batches of this worker, from where the feed stands."""
        worker, feed = data.get_worker_info(), self.opened.feed
        self._last = None
        if worker is None:
            for batch in feed:
                yield self.opened.tensors(batch)
            return
        self._workers = worker.num_workers
        step = feed.step + worker.id if self._first is None else self._first
        while not feed.steps.over(step):
            self._last = feed.batch_at(step)
            step += self._workers
            yield self.opened.tensors(self._last)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch; inside a worker, of that worker's last batch, for `StatefulDataLoader`."""
        feed = self.opened.feed
        if data.get_worker_info() is None:
            return feed.state_dict()
        if self._last is None:
            return {"feed": feed.state_dict(), "next": self._first}
        return {"feed": feed.state_after(self._last), "next": self._last.step + self._workers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after a state: our own, or a worker's."""
        own = state.get("format") == FORMAT
        self.opened.feed.load_state_dict(state if own else state["feed"])
        self._first = None if own else state["next"]


def feed_state(state: Any) -> dict[str, Any]:
    """Return our own state from a `StatefulDataLoader`'s: of the last batch returned, for any number of workers.

    Raises `UsageError` (USE003) where it holds none, or was not taken with ``snapshot_every_n_steps=1``.
    """
    found: list[dict[str, Any]] = []

    def search(one: Any) -> None:
        if isinstance(one, dict):
            if one.get("format") == FORMAT:
                found.append(one)
            elif one.get("_steps_since_snapshot"):
                late = one["_steps_since_snapshot"]
                raise UsageError("USE003", "state", expected="snapshot_every_n_steps=1", found=f"{late} steps after it")
            else:
                for value in one.values():
                    search(value)

    search(state)
    if not found:
        raise UsageError(
            "USE003", "state", expected="a StatefulDataLoader over a FeedDataset", found="no state of a feed"
        )
    return max(found, key=lambda one: int(one["step"]))


class SampleDataset(data.Dataset):  # type: ignore[misc]
    """Samples of an order by number, each a row: for samplers of one's own. Takes what `open_feed` takes.

    ``dataset[i]`` is a dict of tensors without the axis of rows, and ``sample``, its number; ``len(dataset)`` the samples of
    the order. For steps as the schedule has them: ``DataLoader(dataset, batch_sampler=StepSampler(dataset))``.
    """

    def __init__(self, run: Any, *, cp_rank: int = 0, cp_size: int = 1, **options: Any) -> None:
        self.opened = Opened(run, cp_rank, cp_size, {**options, "prefetch": 0})

    def __len__(self) -> int:
        """Return the samples; raises `UsageError` (USE003) for an order without an end."""
        length = self.opened.feed.order.length
        if length is None:
            raise UsageError("USE003", "len()", expected="an order with an end", found=self.opened.feed.order.name)
        return length

    def __getitem__(self, sample: int) -> dict[str, torch.Tensor]:
        """Return one row; negative numbers count from the end."""
        length = self.opened.feed.order.length
        number = int(sample) + (length or 0) if sample < 0 else int(sample)
        if number < 0 or (length is not None and number >= length):
            raise IndexError(sample)
        return self.__getitems__([number])[0]

    def __getitems__(self, samples: Sequence[int]) -> list[dict[str, torch.Tensor]]:
        """Return several rows, gathered together."""
        made = self.opened.feed.rows(samples)
        arrays = cut(made, self.opened.cp_rank, self.opened.cp_size) if self.opened.cp_size > 1 else made
        whole = tensors(arrays)
        for name, tensor in whole.items():
            if tensor.dim() == 0 or len(tensor) != len(samples):
                expected = "a row policy whose arrays have an axis of rows"
                raise UsageError("USE003", name, expected=expected, found=f"shape {tuple(tensor.shape)}")
        numbers = torch.tensor(list(samples), dtype=torch.int64)
        return [{**{k: v[n] for k, v in whole.items()}, "sample": numbers[n]} for n in range(len(samples))]


class StepSampler(data.Sampler):  # type: ignore[misc]
    """The samples of each step that this rank takes, from where the dataset's feed stands: a ``batch_sampler``.

    A rank that has no rows of a short last batch is given nothing for it: open the dataset with ``last="drop"`` where all
    ranks must take as many steps.
    """

    def __init__(self, dataset: SampleDataset) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[list[int]]:
        """Yield lists of samples, step after step."""
        feed = self._dataset.opened.feed
        step = feed.step
        while not feed.steps.over(step):
            ((begin, count),) = feed.steps.ranges(step, 1)
            mine = feed.steps.wrapped(feed.share.of(begin, count)).tolist()
            if mine:
                yield mine
            step += 1
