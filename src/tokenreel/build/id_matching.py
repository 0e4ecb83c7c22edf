"""Which of many 128-bit ids are among many others: a hash table of row numbers, open addressing.

Ids may stand many times on both sides. Parts that fit the cache (`id_spill`) are matched fastest, several at once.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import inlined, kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]

MOST_ROWS = (1 << 31) - 1
ROOMY = 1 << 20
"""Rows up to which a table is three times as long as they are; beyond, half as long again."""
_Made = TypeVar("_Made")


def match(wanted: U64, there: U64) -> npt.NDArray[np.int32]:
    """Return, for every row of `wanted`, the first row of `there` with the same id, or -1.

    Both are uint64 (rows, 2), strided or not: high and low halves. Raises `OrderError` (ORD002) for 2**31 rows or more.
    Cost: 10 ns a row of either side in the cache, 90 at 2**24 rows; 6 bytes a row of `there` besides the result, 12 up to
    2**20 rows. The two may be one array: half the cost.

    >>> ids = np.array([[1, 2], [3, 4]], dtype=np.uint64)
    >>> match(ids[[1, 1, 0]], ids).tolist(), match(np.array([[9, 9]], np.uint64), ids).tolist()
    ([1, 1, 0], [-1])
    """
    for side in (wanted, there):
        if len(side) > MOST_ROWS:
            raise OrderError("ORD002", "ids of one part", expected=f"at most {MOST_ROWS}", found=len(side))
    out = np.full(len(wanted), -1, dtype=np.int32)
    if not len(wanted) or not len(there):
        return out
    entries = 3 * len(there) if len(there) <= ROOMY else len(there) + len(there) // 2
    table = np.full(entries, -1, dtype=np.int32)
    if wanted is there:
        _first(there[:, 0], there[:, 1], table, out)
    else:
        _first(there[:, 0], there[:, 1], table, out[:0])
        _match(wanted[:, 0], wanted[:, 1], there[:, 0], there[:, 1], table, out)
    return out


def each_part(parts: int, job: Callable[[int], _Made], threads: int) -> Iterator[_Made]:
    """Yield the results of a job for every part, in order; at most `threads` are held or under way at once.

    >>> list(each_part(4, lambda part: part * part, 2))
    [0, 1, 4, 9]
    """
    if threads < 2 or parts < 2:
        yield from map(job, range(parts))
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque(pool.submit(job, part) for part in range(min(threads, parts)))
        for part in range(len(waiting), parts + len(waiting)):
            made = waiting.popleft().result()
            if part < parts:
                waiting.append(pool.submit(job, part))
            yield made


_COLUMN = "Array(uint64, 1, 'A', True)"


@inlined
def _slot(high: Any, low: Any, size: Any) -> Any:
    # The upper half of a product of all 128 bits, brought to [0, size) by another product.
    mixed = (low ^ (high * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xD6E8FEB86659FD93)
    return np.int64(((mixed >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))


@kernel(f"void({_COLUMN}, {_COLUMN}, int32[::1], int32[::1])")
def _first(high: Any, low: Any, table: Any, out: Any) -> None:
    """Fill the table with the first row of every id; `out`, if it has a length, with each row's."""
    size = len(table)
    for row in range(len(high)):
        slot = _slot(high[row], low[row], size)
        first = row
        while True:
            held = table[slot]
            if held < 0:
                table[slot] = row
                break
            if low[held] == low[row] and high[held] == high[row]:
                first = held
                break
            slot += 1
            if slot == size:
                slot = 0
        if len(out):
            out[row] = first


@kernel(f"void({_COLUMN}, {_COLUMN}, {_COLUMN}, {_COLUMN}, int32[::1], int32[::1])")
def _match(wanted_high: Any, wanted_low: Any, there_high: Any, there_low: Any, table: Any, out: Any) -> None:
    size = len(table)
    for row in range(len(wanted_high)):
        slot = _slot(wanted_high[row], wanted_low[row], size)
        while True:
            held = table[slot]
            if held < 0:
                break
            if there_low[held] == wanted_low[row] and there_high[held] == wanted_high[row]:
                out[row] = held
                break
            slot += 1
            if slot == size:
                slot = 0
