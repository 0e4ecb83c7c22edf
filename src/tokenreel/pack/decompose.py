"""Dataset decomposition: every document cut into powers of two, and rows of pieces of one length.

A document gives as many pieces of the row's length as it holds, then one for each smaller power of two in the rest, from the
largest down to `shortest`; what is left below that is lost, and counted. A row of S tokens holds ``S / p`` pieces of p
tokens, so it can be viewed as that many rows without padding, masks or neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import kernel
from tokenreel.pack.plan_sizes import READ_I64, READ_U32

if TYPE_CHECKING:
    import numpy.typing as npt

    U32 = npt.NDArray[np.uint32]

KIND = 20
"""An entry is ``power << 20 | document``."""


def pieces_of(length: int, room: int, shortest: int = 1) -> list[tuple[int, int]]:
    """Return the pieces of one document as (begin, end).

    >>> pieces_of(82, 64, 8), pieces_of(27, 64, 8), pieces_of(7, 64, 8)
    ([(0, 64), (64, 80)], [(0, 16), (16, 24)], [])
    """
    out = [(begin, begin + room) for begin in range(0, length - room + 1, room)]
    begin, power = len(out) * room, room >> 1
    while power >= shortest:
        if (length - begin) & power:
            out.append((begin, begin + power))
            begin += power
        power >>= 1
    return out


def decompose(sizes: npt.ArrayLike, room: int, shortest: int) -> tuple[U32, U32]:
    """Return rows of pieces shorter than `room`: entries end to end, and the first entry of each row.

    Rows come by power, the largest first; pieces of one power as their documents are stored.

    >>> [a.tolist() for a in decompose([3, 6, 2], 4, 1)]
    [[1048576, 1048577, 1048578, 0], [0, 2, 3]]
    """
    lengths = np.ascontiguousarray(sizes, dtype=np.uint32)
    powers = room.bit_length() - 1
    counts = np.zeros(powers + 1, dtype=np.int64)
    _count(lengths, powers, shortest, counts)
    rows = int(sum(-(-int(n) * (1 << p) // room) for p, n in enumerate(counts)))
    entries, firsts = np.empty(int(counts.sum()), dtype=np.uint32), np.empty(rows, dtype=np.uint32)
    _fill(lengths, room, powers, counts, entries, firsts)
    return entries, firsts


@kernel(f"void({READ_U32}, int64, int64, int64[::1])")
def _count(lengths: Any, powers: int, shortest: int, counts: Any) -> None:
    for k in range(len(lengths)):
        for power in range(powers):
            if (1 << power) >= shortest:
                counts[power] += (np.int64(lengths[k]) >> power) & 1


@kernel(f"void({READ_U32}, int64, int64, {READ_I64}, uint32[::1], uint32[::1])")
def _fill(lengths: Any, room: int, powers: int, counts: Any, entries: Any, firsts: Any) -> None:
    used = rows = 0
    for power in range(powers - 1, -1, -1):
        if counts[power] == 0:
            continue
        each = room >> power
        held = 0
        for k in range(len(lengths)):
            if (np.int64(lengths[k]) >> power) & 1:
                if held % each == 0:
                    firsts[rows] = used
                    rows += 1
                entries[used] = (power << KIND) | k
                used += 1
                held += 1
