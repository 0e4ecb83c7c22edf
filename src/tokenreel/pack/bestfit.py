"""Best fit, longest first: every document goes into the row that it leaves the least room in.

Documents come longest first; a row stands in the queue of the room it has left, and the least room that suffices is found in
a set of bits. Among rows with equal room the one that has it longest is taken. Who comes first among documents of equal
length is the seed's to say: blocks of 64 documents under a keyed permutation, and in each the numbers 0 .. 63 with some of
their bits turned. One document costs the same however many rows are open: less than 0.1 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import kernel
from tokenreel.order.keyed import KeyedPermutation
from tokenreel.order.windows_shuffle import scrambled
from tokenreel.pack.plan_bits import following, put, take
from tokenreel.pack.plan_sizes import READ_I64, READ_U32

if TYPE_CHECKING:
    import numpy.typing as npt

BLOCK = 64
TIES = 0x7061636B
"""Enters the seed, so that rows are not shuffled as ties are."""


def best_fit(
    sizes: npt.ArrayLike, room: int, seed: int | None = None, window: int = 0
) -> tuple[npt.NDArray[np.int32], int]:
    """Return the row of each document, -1 for an empty one, and the number of rows of `room` tokens.

    No size may be above `room`. Without a `seed` equal documents come as they stand.

    >>> row, rows = best_fit([5, 3, 7, 2, 0, 1], 8)
    >>> row.tolist(), rows
    ([1, 1, 0, 2, -1, 0], 3)
    """
    lengths = np.ascontiguousarray(sizes, dtype=np.uint32)
    row_of = np.empty(len(lengths), dtype=np.int32)
    blocks, flips = visits(len(lengths), seed, window)
    return row_of, int(_best_fit(lengths, blocks, flips, room, row_of))


def visits(n: int, seed: int | None, window: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return in which order blocks of 64 documents come, and what turns the numbers in each.

    Document ``64 * blocks[k] + (i ^ flips[k])`` comes i-th of the k-th block, where it is below `n`.

    >>> [one.tolist() for one in visits(130, None, 0)]
    [[0, 1, 2], [0, 0, 0]]
    """
    count = -(-n // BLOCK)
    blocks = np.arange(count, dtype=np.int64)
    if seed is None:
        return blocks, np.zeros(count, dtype=np.int64)
    word = scrambled(np.array([seed ^ TIES, window], dtype=np.uint64))
    turned = scrambled(blocks.astype(np.uint64) ^ word[0] ^ (word[1] >> np.uint64(1)))
    flips = (turned >> np.uint64(64 - 6)).astype(np.int64)
    return KeyedPermutation(count, seed ^ TIES, window).at(blocks), flips


@kernel(f"int64({READ_U32}, {READ_I64}, {READ_I64}, int64, int32[::1])")
def _best_fit(sizes: Any, blocks: Any, flips: Any, room: Any, row_of: Any) -> Any:
    n = len(sizes)
    # Documents by size, largest first.
    edges = np.zeros(room + 2, dtype=np.int64)
    for k in range(n):
        edges[room - np.int64(sizes[k]) + 1] += 1
    for size in range(room + 1):
        edges[size + 1] += edges[size]
    placed = edges[room]
    falling = np.empty(n, dtype=np.int32)
    for k in range(len(blocks)):
        for i in range(BLOCK):
            one = blocks[k] * BLOCK + (i ^ flips[k])
            if one < n:
                at = room - np.int64(sizes[one])
                falling[edges[at]] = one
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
