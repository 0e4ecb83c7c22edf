"""What index files and our own cache have in common: entries with their lengths, edges and owners, laid end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.spans import DocTable

    I64 = npt.NDArray[np.int64]

READ = 1 << 20


def edges_of(table: DocTable, first: int, last: int) -> I64:
    """Return the edges of units first .. last-1 in the stream. 8 bytes a unit."""
    out = np.empty(last - first + 1, dtype=np.int64)
    out[0] = table.tokens if first == table.documents else int(table.offsets_at(np.array([first], dtype=np.int64))[0])
    for low in range(first, last, READ):
        high = min(last, low + READ)
        np.cumsum(table.lengths(low, high), out=out[low - first + 1 : high - first + 1])
        out[low - first + 1 : high - first + 1] += out[low - first]
    return out


def owners_of(documents: DocTable | None, offsets: I64) -> tuple[I64 | None, int]:
    """Return the edges of the documents that hold a stretch of units, and the first one's number.

    None where there is no table, or where the documents are those units themselves.
    """
    begin, end = int(offsets[0]), int(offsets[-1])
    if documents is None or begin == end:
        return None, 0
    low, high = documents.at_tokens(np.array([begin, end - 1], dtype=np.int64)).tolist()
    edges = edges_of(documents, low, high + 1)
    return (None, 0) if np.array_equal(edges, offsets) else (edges, low)


def packed_entries(documents: npt.NDArray[Any], offsets: I64, first: int) -> I64:
    """Return entries as ``length << 32 | number``; `offsets` are the edges of units first, first + 1, ..

    >>> packed_entries(np.array([6, 5]), np.array([0, 2, 3]), 5).tolist() == [(1 << 32) + 6, (2 << 32) + 5]
    True
    """
    lengths = np.diff(offsets)
    out: I64 = lengths[documents.astype(np.int64) - first]
    out <<= 32
    out |= documents
    return out
