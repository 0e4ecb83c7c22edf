"""Rows without padding that begin with a document: the longest that fits goes in, and the last one is cut to fit.

`crop` is nanochat's: some documents wait in a buffer; the longest of them that fits is taken (the first of equals), and
where none fits the shortest is cut to the room that is left. What is longer than a row is dealt with before, or it would
wait for ever: it never fits, and is never the shortest. `aligned` is modded-nanogpt's: documents come as they are
stored, and the one that does not fit is cut. What is cut off is lost, and counted. Only the last row of a window of
documents may have room left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import kernel
from tokenreel.pack.plan_bits import following, previous, put, take
from tokenreel.pack.plan_sizes import READ_U32

if TYPE_CHECKING:
    import numpy.typing as npt

    U32 = npt.NDArray[np.uint32]


def crop(sizes: npt.ArrayLike, room: int, buffer: int) -> tuple[U32, U32]:
    """Return the documents of all rows end to end, and the first entry of each row; the last of a row may be cut.

    No size may be above `room`. A document costs the same whatever the buffer: less than 0.1 us.

    >>> [a.tolist() for a in crop([950, 500, 200, 100, 300], 1000, 5)]
    [[0, 3, 1, 4, 2], [0, 2]]
    """
    lengths = np.ascontiguousarray(sizes, dtype=np.uint32)
    entries, firsts = np.empty(len(lengths), dtype=np.uint32), np.empty(len(lengths) + 1, dtype=np.uint32)
    rows = _crop(lengths, room, buffer, entries, firsts)
    return entries[: firsts[rows]], firsts[:rows]


def aligned(sizes: npt.ArrayLike, room: int, longest: int) -> tuple[U32, U32]:
    """Return rows as `crop` does: documents in order, each cut to `longest` and to the room that is left.

    >>> [a.tolist() for a in aligned([5, 9, 2, 1], 8, 6)]
    [[0, 1, 2, 3], [0, 2]]
    """
    lengths = np.ascontiguousarray(sizes, dtype=np.uint32)
    entries, firsts = np.empty(len(lengths), dtype=np.uint32), np.empty(len(lengths) + 1, dtype=np.uint32)
    rows = _aligned(lengths, room, longest, entries, firsts)
    return entries[: firsts[rows]], firsts[:rows]


@kernel(f"int64({READ_U32}, int64, int64, uint32[::1], uint32[::1])")
def _crop(sizes: Any, room: int, buffer: int, entries: Any, firsts: Any) -> int:
    n = len(sizes)
    heads = np.full(room + 1, -1, dtype=np.int32)
    tails = np.full(room + 1, -1, dtype=np.int32)
    nexts = np.empty(n, dtype=np.int32)
    words = np.zeros((room >> 6) + 1, dtype=np.uint64)
    upper = np.zeros((len(words) >> 6) + 1, dtype=np.uint64)
    waiting = coming = used = rows = 0
    while True:
        firsts[rows] = used
        filled = 0
        while filled < room:
            while waiting < buffer and coming < n:
                size: Any = np.int64(sizes[coming])
                if size > 0:
                    if heads[size] < 0:
                        heads[size] = coming
                        put(words, upper, size)
                    else:
                        nexts[tails[size]] = coming
                    tails[size] = coming
                    waiting += 1
                coming += 1
            if waiting == 0:
                break
            size = previous(words, upper, room - filled)
            if size < 0:
                size = following(words, upper, room - filled)
            document: Any = np.int64(heads[size])
            if heads[size] == tails[size]:
                heads[size] = -1
                take(words, upper, size)
            else:
                heads[size] = nexts[document]
            entries[used] = document
            used += 1
            waiting -= 1
            filled += size
        if filled == 0:
            return rows
        rows += 1


@kernel(f"int64({READ_U32}, int64, int64, uint32[::1], uint32[::1])")
def _aligned(sizes: Any, room: int, longest: int, entries: Any, firsts: Any) -> int:
    used = rows = filled = 0
    firsts[0] = 0
    for document in range(len(sizes)):
        size: Any = min(np.int64(sizes[document]), np.int64(longest))
        if size == 0:
            continue
        entries[used] = document
        used += 1
        filled += size
        if filled >= room:
            rows += 1
            firsts[rows] = used
            filled = 0
    if filled > 0:
        rows += 1
        firsts[rows] = used
    return rows
