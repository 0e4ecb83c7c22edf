"""`Batch`: the rows of one step, and `batches`, which makes them: spans for many steps at once, tokens step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokenreel.spans import SpanTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from tokenreel.feed.placement import Share
    from tokenreel.feed.schedule import Steps
    from tokenreel.order.protocol import Order

    I64 = npt.NDArray[np.int64]
    Arrays = dict[str, npt.NDArray[Any]]

ROWS = 4096
"""Rows whose spans are asked for at once, where steps are smaller."""
EXTENTS = 1 << 18
"""Extents held at once: with rows of many documents fewer rows are asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The rows of one step that one rank takes; arrays are the caller's to keep and to change.

    ``batch["input_ids"]`` is an array of ``batch.arrays``; which there are is the row policy's to say.
    """

    step: int
    """The step these rows are for, counted over the whole run."""
    position: int
    """First sample of the step's global batch: samples consumed before it, over all ranks."""
    count: int
    """Samples of the global batch, over all ranks."""
    samples: I64
    """Sample of the order that each row is, read-only."""
    sources: npt.NDArray[np.int32]
    """Component of the order that each row is of, read-only."""
    arrays: Arrays
    table: SpanTable
    """Where each row's tokens come from."""

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return one array by its name."""
        return self.arrays[name]

    def __len__(self) -> int:
        """Return the number of rows, which may be 0 in a short last batch."""
        return len(self.samples)


class Gathers(Protocol):
    """What turns extents into arrays: `feed.gather.Gatherer`."""

    def batch(self, table: SpanTable, out: Mapping[str, npt.NDArray[Any]] | None = None) -> Arrays:
        """Return the arrays of a table's samples, in `out` where it is given."""
        ...


class Lends(Protocol):
    """What lends buffers to batches; None where a batch brings its own."""

    def take(self, rows: int) -> Mapping[str, npt.NDArray[Any]] | None:
        """Return buffers for a batch of `rows`, in nobody's use."""
        ...


def batches(
    order: Order,
    steps: Steps,
    share: Share,
    gather: Gathers,
    buffers: Lends,
    first: int,
) -> Iterator[Batch]:
    """Yield the batches of one rank from step `first` on, to the end of `steps`.

    The order is asked for the spans of one step, then of four, of sixteen, as far as `ROWS` and `EXTENTS` go: the first
    batch comes soon, and later ones cost no more than a slice of a table.
    """
    step, ask = first, 1
    while not steps.over(step):
        ranges = steps.ranges(step, ask)
        placed_ids = [share.of(begin, count) for begin, count in ranges]
        ids = steps.wrapped(placed_ids[0] if len(placed_ids) == 1 else np.concatenate(placed_ids))
        ids.flags.writeable = False
        table, sources = spans_of(order, ids), order.components_at(ids)
        sources.flags.writeable = False
        row = 0
        for number, (begin, count) in enumerate(ranges):
            end = row + len(placed_ids[number])
            rows = table_rows(table, row, end)
            # Not by name: buffers held here could not be used again.
            yield Batch(
                step + number,
                begin,
                count,
                ids[row:end],
                sources[row:end],
                gather.batch(rows, buffers.take(end - row)),
                rows,
            )
            row = end
        step += len(ranges)
        if len(ids) * 4 <= ROWS and table.extents * 4 <= EXTENTS:
            ask *= 4
        elif len(ids) > ROWS or table.extents > EXTENTS:
            ask = max(1, ask // 4)


def spans_of(order: Order, ids: I64) -> SpanTable:
    """Return the spans of samples; neighbours are asked for as a range."""
    n = len(ids)
    if n and int(ids[-1]) - int(ids[0]) == n - 1 and (n < 3 or bool((np.diff(ids) == 1).all())):
        return order.spans(int(ids[0]), int(ids[-1]) + 1)
    return order.spans_at(ids)


def table_rows(table: SpanTable, i: int, j: int) -> SpanTable:
    """Return samples [i, j) of a table as views of it. Cost: 3 us.

    >>> table_rows(SpanTable.of([0, 1, 3], [0, 9, 5], [4, 2, 2]), 1, 2).begin.tolist()
    [9, 5]
    """
    splits = table.splits
    low, high = int(splits[i]), int(splits[j])
    if low == 0 and i == 0 and j == len(splits) - 1:
        return table
    edges = splits[i : j + 1] - low
    edges.flags.writeable = False
    return SpanTable(
        edges,
        table.corpus[low:high],
        table.begin[low:high],
        table.length[low:high],
        table.document[low:high],
        table.start[low:high],
        table.flags[low:high],
    )
