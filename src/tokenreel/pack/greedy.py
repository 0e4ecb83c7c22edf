"""Levanter's greedy packing: neighbouring documents, never reordered, as many as fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import OrderError
from tokenreel.order.kernels import kernel
from tokenreel.pack.plan_sizes import READ_U32

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]
    U32 = npt.NDArray[np.uint32]

SLICES = ("left", "right", "raise", "drop")


def greedy_packs(
    sizes: npt.ArrayLike, room: int, max_segments: int | None = 64, slice_strategy: str = "raise"
) -> list[tuple[int, int]]:
    """Return Levanter's packs as [first document, end); an empty document counts as one.

    A pack is opened at a document and takes the next ones while their sum is at most `room` and they are at most
    `max_segments` (None: any number). A longer document is a pack of its own, of which the first (``left``) or last
    (``right``) `room` tokens stay; is in none and closes the pack before it (``drop``); or raises `OrderError` PCK022.

    >>> greedy_packs([12, 3, 20, 2, 2, 15], 10, slice_strategy="left")
    [(0, 1), (1, 2), (2, 3), (3, 5), (5, 6)]
    >>> greedy_packs([12, 3, 20, 2, 2, 15], 10, slice_strategy="drop")
    [(1, 2), (3, 5)]
    """
    if slice_strategy not in SLICES or room < 1 or (max_segments is not None and max_segments < 1):
        expected = f"a room of 1 or more, {', '.join(SLICES)}, None or 1 or more segments"
        raise OrderError("PCK020", "levanter-greedy", expected=expected, found=(room, slice_strategy, max_segments))
    lengths = np.ascontiguousarray(sizes, dtype=np.uint32)
    refuse_longer(lengths, room, slice_strategy == "raise")
    begins, ends = packs(lengths, room, max_segments or 0, drop=slice_strategy == "drop")
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


def refuse_longer(lengths: U32, room: int, refused: bool, first: int = 0) -> None:
    """Raise `OrderError` (PCK022) for the first document longer than `room`, where such are `refused`."""
    if refused and int(lengths.max(initial=0)) > room:
        at = int((lengths > room).argmax())
        raise OrderError(
            "PCK022", document=first + at, expected=f"at most {room} tokens", found=int(lengths[at]),
            hint='oversize = "split"',
        )  # fmt: skip


def packs(lengths: U32, room: int, segments: int, *, drop: bool) -> tuple[I64, I64]:
    """Return where packs begin and end; `segments` 0 is any number of documents."""
    begins, ends = np.empty(len(lengths), dtype=np.int64), np.empty(len(lengths), dtype=np.int64)
    count = _packs(lengths, room, segments, drop, begins, ends)
    return begins[:count], ends[:count]


def greedy(lengths: U32, room: int, segments: int, *, drop: bool) -> tuple[U32, U32]:
    """Return the documents of all packs end to end, without empty ones, and the first entry of each pack."""
    begins, ends = packs(lengths, room, segments, drop=drop)
    taken = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.add.at(taken, begins, 1)
    np.add.at(taken, ends, -1)
    kept = (np.cumsum(taken[:-1]) > 0) & (lengths > 0)
    before = np.concatenate(([0], np.cumsum(kept)))
    return np.flatnonzero(kept).astype(np.uint32), before[begins].astype(np.uint32)


@kernel(f"int64({READ_U32}, int64, int64, boolean, int64[::1], int64[::1])")
def _packs(lengths: Any, room: int, segments: int, drop: bool, begins: Any, ends: Any) -> int:
    count = 0
    filled = np.int64(0)
    is_open = False
    for document in range(len(lengths)):
        size = np.int64(lengths[document])
        if size > room and drop:
            if is_open:
                ends[count - 1] = document
                is_open = False
            continue
        full = filled + size > room or (segments > 0 and is_open and document - begins[count - 1] >= segments)
        if is_open and full:
            ends[count - 1] = document
            is_open = False
        if not is_open:
            begins[count] = document
            count += 1
            filled = np.int64(0)
            is_open = True
        filled += size
    if is_open:
        ends[count - 1] = len(lengths)
    return count
