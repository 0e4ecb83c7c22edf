"""Rows without padding that begin with a document: the longest that fits goes in, and the last one is cut to fit.

`crop` is nanochat's: some documents wait in a buffer; the longest of them that fits is taken (the first of equals), and
where none fits the shortest is cut to the room that is left. One longer than a row never fits; if it is let in, it waits
until it is the shortest, and enough of them leave no room in the buffer for others. `aligned` is modded-nanogpt's:
documents come as they are stored, and the one that does not fit is cut. What is cut off is lost, and counted. A row takes
its inputs and its own last label, so `room` is one more than the row has inputs. Only the last row of a window of documents
may have room left: it is filled up with padding, or its documents are in no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import inlined, kernel
from tokenreel.pack.plan_bits import following, previous, put, take
from tokenreel.pack.plan_sizes import READ_U32

if TYPE_CHECKING:
    import numpy.typing as npt

    U32 = npt.NDArray[np.uint32]

NUMBER = 20
"""What waits and is too long is ``size << 20 | document``: the least of them is the first of the shortest."""


def crop(sizes: npt.ArrayLike, room: int, buffer: int, refill: int = 1, *, drop: bool = False) -> tuple[U32, U32]:
    """Return the documents of all rows end to end, and the first entry of each row; the last of a row may be cut.

    `refill` documents at a time come into the buffer while fewer than `buffer` wait. With `drop` a last row that is not full
    is none. A document costs the same whatever the buffer: less than 0.1 us; one longer than `room`, the logarithm of those.

    >>> [a.tolist() for a in crop([950, 500, 200, 100, 300], 1000, 5)]
    [[0, 3, 1, 4, 2], [0, 2]]
    >>> [a.tolist() for a in crop([9, 3, 9, 2], 4, 2)]
    [[1, 0, 3, 2], [0, 2]]
    """
    lengths = np.ascontiguousarray(sizes, dtype=np.uint32)
    entries, firsts = np.empty(len(lengths), dtype=np.uint32), np.empty(len(lengths) + 1, dtype=np.uint32)
    longer = np.empty(int(np.count_nonzero(lengths > room)), dtype=np.int64)
    rows = _crop(lengths, room, buffer, refill, drop, longer, entries, firsts)
    return entries[: firsts[rows]], firsts[:rows]


def aligned(sizes: npt.ArrayLike, room: int, longest: int, *, drop: bool = False) -> tuple[U32, U32]:
    """Return rows as `crop` does: documents in order, each cut to `longest` and to the room that is left.

    >>> [a.tolist() for a in aligned([5, 9, 2, 1], 8, 6)]
    [[0, 1, 2, 3], [0, 2]]
    """
    lengths = np.ascontiguousarray(sizes, dtype=np.uint32)
    entries, firsts = np.empty(len(lengths), dtype=np.uint32), np.empty(len(lengths) + 1, dtype=np.uint32)
    rows = _aligned(lengths, room, longest, drop, entries, firsts)
    return entries[: firsts[rows]], firsts[:rows]


@inlined
def push(heap: Any, held: Any, key: Any) -> None:
    """Add a key to a heap that holds `held` keys, the least first."""
    at = held
    while at > 0:
        above = (at - 1) >> 1
        if heap[above] <= key:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = key


@inlined
def pop(heap: Any, held: Any) -> Any:
    """Take the least key out of a heap that holds `held` keys, 1 or more."""
    least = heap[0]
    key = heap[held - 1]
    at = 0
    while 2 * at + 1 < held - 1:
        below = 2 * at + 1
        if below + 1 < held - 1 and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= key:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = key
    return least


@kernel(f"int64({READ_U32}, int64, int64, int64, boolean, int64[::1], uint32[::1], uint32[::1])")
def _crop(
    sizes: Any, room: int, buffer: int, refill: int, drop: bool, longer: Any, entries: Any, firsts: Any
) -> int:  # fmt: skip
    n = len(sizes)
    heads = np.full(room + 1, -1, dtype=np.int32)
    tails = np.full(room + 1, -1, dtype=np.int32)
    nexts = np.empty(n, dtype=np.int32)
    words = np.zeros((room >> 6) + 1, dtype=np.uint64)
    upper = np.zeros((len(words) >> 6) + 1, dtype=np.uint64)
    waiting = coming = used = rows = too_long = 0
    while True:
        firsts[rows] = used
        filled = 0
        while filled < room:
            while waiting < buffer and coming < n:
                read = 0
                while read < refill and coming < n:
                    size: Any = np.int64(sizes[coming])
                    if size > room:
                        push(longer, too_long, (size << NUMBER) | coming)
                        too_long += 1
                    elif size > 0:
                        if heads[size] < 0:
                            heads[size] = coming
                            put(words, upper, size)
                        else:
                            nexts[tails[size]] = coming
                        tails[size] = coming
                    if size > 0:
                        waiting += 1
                        read += 1
                    coming += 1
            if waiting == 0:
                break
            size = previous(words, upper, room - filled)
            if size < 0:
                size = following(words, upper, room - filled)
            if size < 0:
                entries[used] = pop(longer, too_long) & ((1 << NUMBER) - 1)
                too_long -= 1
                size = room
            else:
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
        if filled == 0 or (drop and filled < room):
            return rows
        rows += 1


@kernel(f"int64({READ_U32}, int64, int64, boolean, uint32[::1], uint32[::1])")
def _aligned(sizes: Any, room: int, longest: int, drop: bool, entries: Any, firsts: Any) -> int:
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
    if filled > 0 and not drop:
        rows += 1
        firsts[rows] = used
    return rows
