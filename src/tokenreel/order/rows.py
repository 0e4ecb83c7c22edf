"""Span tables of several members put together sample by sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenreel.spans import SpanTable

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]


def interleaved(member: npt.NDArray[np.integer], number: I64, read: list[Callable[[I64], SpanTable]]) -> SpanTable:
    """Return the table whose sample n is sample ``number[n]`` of member ``member[n]``.

    ``read[m]`` gives the samples of member m; its extents of corpus c become those of corpus m + c, so that members with
    one corpus each are numbered as they stand. Every member is read once. About 40 ns an extent besides the reading.

    >>> tables = [lambda k: SpanTable.of([0, *range(1, len(k) + 1)], 10 * k, 10)] * 2
    >>> table = interleaved(np.array([1, 0]), np.array([3, 2]), tables)
    >>> table.begin.tolist(), table.corpus.tolist()
    ([30, 20], [1, 0])
    """
    counts = np.zeros(len(member), dtype=np.int64)
    parts = []
    for m in np.unique(member).tolist():
        rows = np.flatnonzero(member == m)
        table = read[m](number[rows])
        counts[rows] = np.diff(table.splits)
        parts.append((m, rows, table))
    splits = np.concatenate(([0], np.cumsum(counts)))
    total = int(splits[-1])
    corpus, flags = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.uint8)
    begin, length, document, start = (np.empty(total, dtype=np.int64) for _ in range(4))
    for m, rows, table in parts:
        shift = np.repeat(splits[rows] - table.splits[:-1], counts[rows])
        at = shift + np.arange(table.extents, dtype=np.int64)
        corpus[at] = table.corpus + np.int32(m)
        begin[at], length[at], document[at], start[at] = table.begin, table.length, table.document, table.start
        flags[at] = table.flags
    out = SpanTable(splits, corpus, begin, length, document, start, flags)
    for column in out.columns():
        column.flags.writeable = False
    return out
