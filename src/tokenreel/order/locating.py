"""Inverses of stored permutations, and the choice of extents by document: what `locate` stands on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import kernel
from tokenreel.order.protocol import Hits

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.spans import SpanTable

    I64 = npt.NDArray[np.int64]

INT32_MAX = (1 << 31) - 1


def inverse(permutation: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return where each number stands in a permutation of 0 .. n-1: int32, or int64 beyond 2**31 - 1.

    >>> inverse(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    n = len(permutation)
    out = np.empty(n, dtype=np.int32 if n <= INT32_MAX else np.int64)
    out[permutation] = np.arange(n, dtype=out.dtype)
    return out


def entries_of(documents: npt.NDArray[np.int32], first: int, last: int, epochs: int) -> npt.NDArray[Any]:
    """Return where each of first .. last-1 stands in an order that holds every one `epochs` times, ascending.

    The places of number d are ``out[(d - first) * epochs : (d - first + 1) * epochs]``. int32, or int64 where needed.

    >>> entries_of(np.array([5, 6, 6, 5], dtype=np.int32), 5, 7, 2).tolist()
    [0, 3, 1, 2]
    """
    out = np.empty(len(documents), dtype=np.int32 if len(documents) <= INT32_MAX else np.int64)
    _entries(documents, first, epochs, np.zeros(last - first, dtype=np.int32), out)
    return out


@kernel(
    "void(int32[::1], int64, int64, int32[::1], int32[::1])", "void(int32[::1], int64, int64, int32[::1], int64[::1])"
)
def _entries(documents: Any, first: int, epochs: int, filled: Any, out: Any) -> None:
    for k in range(len(documents)):
        d = np.int64(documents[k]) - first
        out[d * epochs + filled[d]] = k
        filled[d] += 1


def select(table: SpanTable, samples: I64, documents: I64) -> Hits:
    """Return the extents of a resolved table that belong to `documents`, by document as asked, then as in the table.

    `samples` are the numbers of the table's rows. Label-only extents are not hits. A document named twice is found twice.
    """
    kept = np.flatnonzero(table.length > 0)
    by_document = kept[np.argsort(table.document[kept], kind="stable")]
    held = table.document[by_document]
    low = np.searchsorted(held, documents, side="left")
    counts = np.searchsorted(held, documents, side="right") - low
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = by_document[np.repeat(low, counts) + within]
    row = table.sample_of()[chosen]
    return Hits(
        table.document[chosen], samples[row], chosen - table.splits[row], table.begin[chosen], table.length[chosen]
    )
