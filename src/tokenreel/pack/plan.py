"""Packing plans: which documents stand together in a row, window by window of 2**20 documents.

Every window is planned for itself, so that windows can be made in any order by any number of threads and the plan is the
same. Rows that a document fills alone are in no plan: they follow from its length. What is left of it, or all of a shorter
one, is one entry of 4 bytes; a row is 4 bytes more.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import inlined, kernel
from tokenreel.pack.bestfit import best_fit
from tokenreel.pack.crop import aligned, crop
from tokenreel.pack.decompose import decompose
from tokenreel.pack.firstfit import first_fit
from tokenreel.pack.greedy import greedy, refuse_longer
from tokenreel.pack.packed_policy import (
    CHUNKS,
    EXACT,
    FIRST,
    FITTING,
    FULL,
    OVER,
    OVERSIZE,
    WAIT,
    WHOLE_CHUNKS,
    Packing,
)
from tokenreel.pack.plan_sizes import BLOCK, READ_U32, SHIFT, Sizes

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]
    U32 = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Rows of one pass over a corpus; arrays are read-only and may be maps of files that processes share."""

    entries: U32
    """Document in its window, for every place in a packed row; with its power of two above bit 20 for decompose."""
    firsts: U32
    """First entry of every packed row, counted in its window."""
    windows: I64
    """(windows + 1, 3): rows of single documents, packed rows and entries before each window."""
    single: I64
    """Rows of single documents before every 16th document, and all of them."""

    @property
    def rows(self) -> int:
        """Rows of one pass."""
        return int(self.windows[-1, 0] + self.windows[-1, 1])

    @property
    def nbytes(self) -> int:
        """Bytes it takes, in memory or in files."""
        return self.entries.nbytes + self.firsts.nbytes + self.windows.nbytes + self.single.nbytes


def make_plan(sizes: Sizes, packing: Packing, seed: int = 0, threads: int = 1) -> Plan:
    """Plan the rows of a corpus: the same for any number of threads. About 0.1 us a document, 9 bytes at most.

    Raises `OrderError` (PCK022) for a document longer than a row where those are errors.
    """
    refuse_longer(sizes.lengths, packing.takes, packing.oversize == "error")
    single = np.empty(len(sizes.begins), dtype=np.int64)
    _single_rows(sizes.lengths, packing.takes, packing.direct, single)
    edges = [*range(0, sizes.documents, packing.window), sizes.documents]
    count = len(edges) - 1
    windows = np.zeros((count + 1, 3), dtype=np.int64)
    windows[:, 0] = single[[edge >> SHIFT for edge in edges[:-1]] + [len(single) - 1]] if count else 0
    if not packing.planned or not count:
        none = np.empty(0, dtype=np.uint32)
        return Plan(_readonly(none), _readonly(none), _readonly(windows), _readonly(single))

    def window(w: int) -> tuple[U32, U32]:
        return plan_window(sizes.lengths[edges[w] : edges[w + 1]], packing, seed, w)

    # Rooms that are never touched are never given: what a window needs is copied out of it at once.
    entries, firsts = (np.empty(sizes.documents, dtype=np.uint32) for _ in range(2))
    with ThreadPoolExecutor(threads) if threads > 1 and count > 1 else nullcontext() as pool:
        for w, (some, begins) in enumerate(pool.map(window, range(count)) if pool else map(window, range(count))):
            _, rows, used = windows[w].tolist()
            entries, firsts = _put(entries, used, some), _put(firsts, rows, begins)
            windows[w + 1, 1:] = rows + len(begins), used + len(some)
    _, rows, used = windows[-1].tolist()
    return Plan(_readonly(entries[:used]), _readonly(firsts[:rows]), _readonly(windows), _readonly(single))


def _put(whole: U32, at: int, some: U32) -> U32:
    """Put numbers into an array at a place, and return it, or a larger copy where it has no room for them."""
    if at + len(some) > len(whole):
        larger = np.empty(2 * (at + len(some)), dtype=np.uint32)
        larger[:at] = whole[:at]
        whole = larger
    whole[at : at + len(some)] = some
    return whole


def plan_window(lengths: U32, packing: Packing, seed: int = 0, window: int = 0) -> tuple[U32, U32]:
    """Return the entries of one window's packed rows end to end, and the first entry of each."""
    room, policy, drop = packing.takes, packing.policy, packing.tail == "drop"
    if policy == "levanter-greedy" and packing.oversize != "split":
        return greedy(lengths, room, packing.segments or 0, drop=packing.oversize == "drop")
    if policy == "bos-aligned":
        return aligned(lengths, room, packing.longest or room, drop=drop)
    if policy == "crop":
        sizes = lengths if packing.oversize == WAIT else np.empty(len(lengths), dtype=np.uint32)
        if packing.oversize != WAIT:
            _fitting(lengths, room, OVERSIZE.index(packing.oversize or "error"), sizes)
        return crop(sizes, room, packing.buffer or 1, packing.refill or 1, drop=drop)
    if policy == "decompose":
        return decompose(lengths, room, packing.shortest or 1)
    sizes = np.empty(len(lengths), dtype=np.uint32)
    _left_over(lengths, room, packing.direct, sizes)
    if policy == "levanter-greedy":
        return greedy(sizes, room, packing.segments or 0, drop=False)
    if policy == "firstfit":
        row_of, rows = first_fit(sizes, room, packing.open_rows or 1)
    else:
        row_of, rows = best_fit(sizes, room, seed, window)
    firsts = np.empty(rows, dtype=np.uint32)
    entries = np.empty(int(np.count_nonzero(sizes)), dtype=np.uint32)
    _by_row(row_of, entries, firsts)
    return entries, firsts


def _readonly(array: Any) -> Any:
    array.flags.writeable = False
    return array


@inlined
def rows_alone(length: Any, room: Any, kind: Any) -> Any:
    """Return the rows that a document of `length` fills alone."""
    if kind == CHUNKS:
        return (length + room - 1) // room
    if kind == WHOLE_CHUNKS:
        return length // room
    if kind == FIRST:
        return min(length, 1)
    if kind == FITTING:
        return 1 if 0 < length <= room else 0
    if kind == FULL:
        return 1 if length >= room else 0
    if kind == OVER:
        return length // room if length > room else 0
    return 1 if kind == EXACT and length == room else 0


@kernel(f"void({READ_U32}, int64, int64, int64[::1])")
def _single_rows(lengths: Any, room: int, kind: int, single: Any) -> None:
    total = np.int64(0)
    for k in range(len(lengths)):
        if k & (BLOCK - 1) == 0:
            single[k >> SHIFT] = total
        total += rows_alone(np.int64(lengths[k]), room, kind)
    single[len(single) - 1] = total


@kernel(f"void({READ_U32}, int64, int64, uint32[::1])")
def _left_over(lengths: Any, room: int, kind: int, sizes: Any) -> None:
    for k in range(len(lengths)):
        length = np.int64(lengths[k])
        if kind == WHOLE_CHUNKS:
            sizes[k] = length % room
        elif length < room:
            sizes[k] = length
        else:
            sizes[k] = 0


@kernel(f"void({READ_U32}, int64, int64, uint32[::1])")
def _fitting(lengths: Any, room: int, oversize: int, sizes: Any) -> None:
    """Fill what crop packs of each document: all that is no longer than a row, and what `oversize` leaves of others."""
    for k in range(len(lengths)):
        length = np.int64(lengths[k])
        if length <= room:
            sizes[k] = length
        elif oversize == 0:
            sizes[k] = length % room
        else:
            sizes[k] = room if oversize == 1 else 0


@kernel("void(int32[::1], uint32[::1], uint32[::1])")
def _by_row(row_of: Any, entries: Any, firsts: Any) -> None:
    """Lay the documents out by row: rows by their first document, and in a row documents, as they are stored."""
    rows = len(firsts)
    number = np.full(rows, -1, dtype=np.int32)
    held = np.zeros(rows + 1, dtype=np.int32)
    found = 0
    for k in range(len(row_of)):
        row = row_of[k]
        if row >= 0:
            if number[row] < 0:
                number[row] = found
                found += 1
            row_of[k] = number[row]
            held[number[row] + 1] += 1
    for row in range(rows):
        held[row + 1] += held[row]
        firsts[row] = held[row]
    for k in range(len(row_of)):
        row = row_of[k]
        if row >= 0:
            entries[held[row]] = k
            held[row] += 1
