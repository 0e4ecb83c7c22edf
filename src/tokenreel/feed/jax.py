"""Feeds for JAX: each host loads the rows its devices hold, and a batch is made of global arrays by sharding.

Which rows a host needs follows from the sharding alone: hosts that hold the same rows (tensor or context parallelism over
hosts) load the same ones. Any mesh over any number of hosts reads the same global batches, and a state goes on in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokenreel.errors import UsageError, require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from tokenreel.feed.batch import Batch
    from tokenreel.feed.feed import Feed

    I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class JaxBatch:
    """The rows of one step as global arrays."""

    step: int
    position: int
    """First sample of the step's global batch."""
    count: int
    """Samples of the global batch: rows of the arrays."""
    samples: I64
    """Sample of each row that this host loaded; of the whole batch: ``range(position, position + count)``."""
    arrays: dict[str, Any]
    """`jax.Array` of (count, columns) by name; what has no axis of rows (``max_seqlen`` of a batch) is numpy's."""

    def __getitem__(self, name: str) -> Any:
        """Return one array by its name."""
        return self.arrays[name]


def host_rows(
    sharding: Any, shape: tuple[int, int], process_of: Callable[[Any], int] | None = None
) -> dict[int, tuple[int, ...]]:
    """Return the rows of a (rows, columns) array that each process's devices hold, ascending.

    Raises `UsageError` (USE003) where hosts hold some rows together and some apart: they could not be told which to load.
    """
    held: dict[int, set[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        process = device.process_index if process_of is None else process_of(device)
        held.setdefault(process, set()).update(range(*index[0].indices(shape[0])))
    rows = {process: tuple(sorted(one)) for process, one in held.items()}
    groups = set(rows.values())
    if sum(map(len, groups)) != shape[0]:
        raise UsageError(
            "USE003", "sharding", expected="hosts with equal or disjoint rows", found=f"{len(groups)} groups"
        )
    return rows


class Hosts:
    """Deals global batches to hosts by a sharding: the placement of a `JaxFeed`."""

    def __init__(
        self, sharding: Any, columns: int, process: int, process_of: Callable[[Any], int] | None = None
    ) -> None:
        self._sharding, self._columns, self._process, self._process_of = sharding, columns, process, process_of
        self._known: dict[int, list[tuple[int, ...]]] = {}
        self._mine: dict[int, int] = {}

    def groups(self, count: int) -> list[tuple[int, ...]]:
        """Return the rows of each group of hosts that loads the same ones."""
        if count not in self._known:
            rows = host_rows(self._sharding, (count, self._columns), self._process_of)
            self._known[count] = sorted(set(rows.values()))
            self._mine[count] = self._known[count].index(rows[self._process])
        return self._known[count]

    def place(self, count: int) -> tuple[int, int]:
        """Return (rank, world) of this host among the groups."""
        world = len(self.groups(count))
        return self._mine[count], world

    def __call__(self, samples: I64, rank: int, world: int) -> I64:
        """Return the samples of one group's rows."""
        groups = self.groups(len(samples))
        if len(groups) != world:
            found = f"{len(groups)} for {len(samples)} rows"
            raise UsageError("USE003", "sharding", expected=f"{world} groups of hosts at every batch size", found=found)
        return samples[list(groups[rank])]


class JaxFeed:
    """A feed whose batches are global arrays. Made by `open_jax_feed`; iterate it, and close it."""

    def __init__(self, feed: Feed, sharding: Any) -> None:
        self.feed, self.sharding = feed, sharding

    def __iter__(self) -> Self:
        """Return the feed itself."""
        return self

    def __next__(self) -> JaxBatch:
        """Return the next batch; its host copy is free as soon as the devices have it."""
        batch = next(self.feed)
        return JaxBatch(
            batch.step, batch.position, batch.count, batch.samples, global_arrays(batch, self.sharding, self.feed)
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch returned: the same on every host."""
        return self.feed.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after a state of any mesh and any number of hosts."""
        self.feed.load_state_dict(state)

    def close(self) -> None:
        """Give the thread, buffers and files back."""
        self.feed.close()

    def __enter__(self) -> Self:
        """Return the feed itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the feed."""
        self.close()


def open_jax_feed(run: Any, sharding: Any, **options: Any) -> JaxFeed:
    """Return a feed of global arrays under `sharding`, a ``NamedSharding`` of (rows, columns) or any other of two axes.

    `options` are `open_feed`'s; rank, world and placement follow from the sharding. Raises `UsageError` (USE003) for a
    sharding that gives hosts rows partly in common, and what `open_feed` raises; JAX itself refuses a batch that the mesh
    does not divide.
    """
    from tokenreel.feed.opening import open_feed

    jax = require("jax", extra="jax")
    for name in ("rank", "world", "placement", "micro_batch"):
        if name in options:
            raise UsageError("USE003", name, expected="what the sharding says", found=str(options[name]))
    options.setdefault("last", "drop")
    # A short batch would have another shape, and be compiled again; it may not divide at all.
    with open_feed(run, **{**options, "prefetch": 0, "ledger": None, "out": None}) as probe:
        count, columns = probe.schedule.batch_at(probe.step), probe.order.row_tokens
    hosts = Hosts(sharding, columns, jax.process_index())
    rank, world = hosts.place(count)
    return JaxFeed(open_feed(run, rank=rank, world=world, placement=hosts, **options), sharding)


def global_arrays(batch: Batch, sharding: Any, feed: Feed) -> dict[str, Any]:
    """Return a host's batch as global arrays: every device is given its part of the rows and columns."""
    jax = require("jax", extra="jax")
    mine = batch.samples - batch.position if not feed.steps.repeats else _rows(batch, feed)
    whole = len(mine) == batch.count
    out = {}
    for name, array in batch.arrays.items():
        if array.ndim == 0 or len(array) != len(mine):
            out[name] = array
            continue
        shape = (batch.count, *array.shape[1:])

        def part(index: tuple[slice, ...], array: npt.NDArray[Any] = array) -> npt.NDArray[Any]:
            low, high, _ = index[0].indices(batch.count)
            rows = slice(low, high) if whole else slice(*np.searchsorted(mine, (low, high)).tolist())
            return array[(rows, *index[1:])]

        out[name] = jax.make_array_from_callback(shape, _ranked(sharding, array, feed.order.row_tokens), part)
    return out


def _rows(batch: Batch, feed: Feed) -> I64:
    """Return the rows of the global batch that a host loaded, where samples begin again at the order's end."""
    return feed.share.of(0, batch.count)


def _ranked(sharding: Any, array: npt.NDArray[Any], columns: int) -> Any:
    """Return the sharding of an array that is not (rows, columns): its rows as theirs, the rest on every device."""
    spec = getattr(sharding, "spec", None)
    if spec is None or (array.ndim == 2 and array.shape[1] == columns):
        return sharding
    jax = require("jax", extra="jax")
    return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*spec[:1]))
