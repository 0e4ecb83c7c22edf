"""Best fit, longest first: every document goes into the row that it leaves the least room in.

Documents come longest first (equal ones in the order given); a row stands in the queue of the room it has left, and the
least room that suffices is found in a set of bits. Among rows with equal room the one that has it longest is taken. One
document costs the same however many rows are open: about 0.1 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import kernel
from tokenreel.pack.plan_bits import following, put, take
from tokenreel.pack.plan_sizes import READ_I64, READ_U32

if TYPE_CHECKING:
    import numpy.typing as npt


def best_fit(sizes: npt.ArrayLike, room: int, order: npt.ArrayLike | None = None) -> tuple[npt.NDArray[np.int32], int]:
    """Return the row of each document, -1 for an empty one, and the number of rows of `room` tokens.

    No size may be above `room`. `order` is a permutation: who comes first among equals; as they stand where left out.

    >>> row, rows = best_fit([5, 3, 7, 2, 0, 1], 8)
    >>> row.tolist(), rows
    ([1, 1, 0, 2, -1, 0], 3)
    """
    lengths = np.ascontiguousarray(sizes, dtype=np.uint32)
    first = np.arange(len(lengths)) if order is None else order
    row_of = np.empty(len(lengths), dtype=np.int32)
    rows = _best_fit(lengths, np.ascontiguousarray(first, dtype=np.int64), room, row_of)
    return row_of, int(rows)


@kernel(f"int64({READ_U32}, {READ_I64}, int64, int32[::1])")
def _best_fit(sizes: Any, order: Any, room: Any, row_of: Any) -> Any:
    n = len(sizes)
    # Documents by size, largest first.
    edges = np.zeros(room + 2, dtype=np.int64)
    for k in range(n):
        edges[room - np.int64(sizes[k]) + 1] += 1
    for size in range(room + 1):
        edges[size + 1] += edges[size]
    placed = edges[room]
    falling = np.empty(n, dtype=np.int32)
    for k in range(n):
        document = order[k]
        at = room - np.int64(sizes[document])
        falling[edges[at]] = document
        edges[at] += 1
    # Rows by room left: a queue for each.
    heads = np.full(room + 1, -1, dtype=np.int32)
    tails = np.full(room + 1, -1, dtype=np.int32)
    nexts = np.empty(n, dtype=np.int32)
    words = np.zeros((room >> 6) + 1, dtype=np.uint64)
    upper = np.zeros((len(words) >> 6) + 1, dtype=np.uint64)
    rows: Any = 0
    row: Any = 0
    for k in range(n):
        document = falling[k]
        if k >= placed:
            row_of[document] = -1
            continue
        wanted: Any = np.int64(sizes[document])
        left: Any = following(words, upper, wanted)
        if left < 0:
            row = rows
            rows += 1
            left = room
        else:
            row = np.int64(heads[left])
            if heads[left] == tails[left]:
                heads[left] = -1
                take(words, upper, left)
            else:
                heads[left] = nexts[row]
        row_of[document] = row
        left -= wanted
        if left > 0:
            if heads[left] < 0:
                heads[left] = row
                put(words, upper, left)
            else:
                nexts[tails[left]] = row
            tails[left] = row
    return rows
