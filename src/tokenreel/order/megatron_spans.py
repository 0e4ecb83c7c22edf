"""Extents of samples that are windows over sequences laid end to end in some order, without a stored sample index.

What is kept: the order of the sequences, their edges in the stream, and an anchor (entry, token) at every few samples.
Sample j is the tokens ``[j*S, j*S + S)`` of the sequences laid end to end and, with look-ahead, the label at ``j*S + S``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import inlined, kernel
from tokenreel.order.megatron_index import tokens_of, unpacked
from tokenreel.spans import SpanTable

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

HEAD, TAIL, AHEAD = 1, 2, 4
ENTRIES_PER_ANCHOR = 4
BLOCK = 64
"""Samples made at once."""
FETCHED = 2048
"""Entries gathered for them, unless one sample needs more."""


@dataclass(frozen=True, slots=True, eq=False)
class LaidOut:
    """Sequences laid end to end, and where samples start in them. 12 bytes a sequence and epoch, at most 4 more for anchors."""

    documents: npt.NDArray[np.int32]
    """Sequence number of each entry."""
    offsets: I64
    """Edges of sequences first, first + 1, .. in the corpus's stream; one more than there are sequences."""
    first: int
    row_tokens: int
    row_ahead: int
    tokens: int
    """Tokens of all entries."""
    samples: int
    anchors: I64
    """(entry, token in it) where sample ``k * stride`` starts."""
    stride: int
    owners: I64 | None
    """Edges of the documents that hold these sequences, where they are others than the sequences themselves."""
    first_owner: int

    def extents(self, rows: I64) -> SpanTable:
        """Return the extents of samples `rows` (numbers in laid-out order), as asked. About 35 ns an extent."""
        count = len(rows)
        per_sample = len(self.documents) / max(1, self.samples) + 2
        capacity = int(count * per_sample * 1.1) + 64
        splits = np.zeros(count + 1, dtype=np.int64)
        columns = _columns(capacity)
        done = used = 0
        while True:
            done, used = _extents(
                rows, self.row_tokens, self.row_ahead, self.tokens, self.documents, self.offsets, self.first,
                self.anchors, self.stride, done, used, splits, *columns,
            )  # fmt: skip
            if done == count:
                break
            longer = _columns(int(capacity * 1.5) + self._longest(int(rows[done])))
            for old, new in zip(columns, longer, strict=True):
                new[:used] = old[:used]
            columns, capacity = longer, len(longer[0])
        if self.owners is not None:
            _own(self.owners, self.first_owner, used, *columns)
        return table_of(splits, used, columns)

    def _longest(self, row: int) -> int:
        """Return more extents than sample `row` can have."""
        return min(self.row_tokens + 2, len(self.documents) + 2) if row >= 0 else 0

    def starts_of(self, entries: I64) -> I64:
        """Return where entries begin among all tokens laid end to end."""
        out = np.empty(len(entries), dtype=np.int64)
        _starts(
            entries, self.documents, self.offsets, self.first, self.anchors, self.stride * self.row_tokens, out
        )  # fmt: skip
        return out


def lay_out(
    packed: I64,
    offsets: I64,
    first: int,
    row_tokens: int,
    row_ahead: int,
    samples: int,
    owners: I64 | None = None,
    first_owner: int = 0,
) -> LaidOut:
    """Return shuffled entries (see `laid_out`; used up) ready to give extents. One pass over the entries."""
    entries = len(packed)
    tokens = int(tokens_of(packed))
    anchored = min(samples, -(-tokens // row_tokens))
    stride = 1
    while -(-anchored // stride) > entries // ENTRIES_PER_ANCHOR + 1:
        stride *= 2
    count = max(1, -(-anchored // stride))
    documents, anchors = unpacked(packed, row_tokens * stride, 1, count - 1, wide=True)
    return LaidOut(
        documents, offsets, first, row_tokens, row_ahead, tokens, samples, anchors, stride, owners, first_owner
    )


def table_of(splits: I64, used: int, columns: tuple[npt.NDArray[Any], ...]) -> SpanTable:
    """Return a table over the first `used` rows of begin, length, document, start, flags; the memory is shared."""
    begin, length, document, start, flags = (column[:used] for column in columns)
    table = SpanTable(splits, np.zeros(used, dtype=np.int32), begin, length, document, start, flags)
    for column in table.columns():
        column.flags.writeable = False
    return table


def _columns(capacity: int) -> tuple[npt.NDArray[Any], ...]:
    return (*(np.empty(capacity, dtype=np.int64) for _ in range(4)), np.empty(capacity, dtype=np.uint8))


@inlined
def look_up(
    rows: Any, block: int, stride: int, anchors: Any, documents: Any, offsets: Any, first: int, places: Any,
    gathered: Any,
) -> Any:  # fmt: skip
    """Gather what the samples from `block` on need: of each, where its entries are; of each entry, number, origin, length.

    Nothing that is fetched decides a branch before all of its kind is fetched, so that the fetches overlap. Return the
    first sample that is not served, and the gathered entries: a longer array where one sample needs more than there is.
    """
    stop = min(block + BLOCK, len(rows))
    for n in range(block, stop):
        anchor = min(rows[n] // stride, len(anchors) - 1)
        places[0, n - block] = anchor
        places[1, n - block] = anchors[anchor, 0]
        places[2, n - block] = anchors[anchor, 1]
        following = min(anchor + 1, len(anchors) - 1)
        places[3, n - block] = anchors[following, 0] + 1 if following > anchor else len(documents)
    used = np.int64(0)
    for n in range(stop - block):
        low, high = places[1, n], places[3, n]
        if used + high - low > gathered.shape[1]:
            if n > 0:
                stop = block + n
                break
            gathered = np.empty((3, high - low), np.int64)
        places[1, n] = used
        for k in range(high - low):
            gathered[0, used + k] = documents[low + k]
        used += high - low
    for k in range(used):
        d = gathered[0, k] - first
        gathered[1, k] = offsets[d]
        gathered[2, k] = offsets[d + 1] - offsets[d]
    return stop, gathered


@kernel(
    "UniTuple(int64, 2)(int64[::1], int64, int64, int64, int32[::1], int64[::1], int64, int64[:, ::1], int64, int64, "
    "int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], uint8[::1])"
)
def _extents(  # noqa: PLR0913, PLR0917
    rows: Any, row_tokens: int, row_ahead: int, tokens: int, documents: Any, offsets: Any, first: int, anchors: Any,
    stride: int, done: int, used: int, splits: Any, begin: Any, length: Any, document: Any, start: Any, flags: Any,
) -> tuple[int, int]:  # fmt: skip
    """Append the extents of rows[done:]; stop before a sample that may not fit. Return (rows done, extents used)."""
    capacity = len(begin)
    places, gathered = np.empty((4, BLOCK), np.int64), np.empty((3, FETCHED), np.int64)
    block = done
    while block < len(rows):
        stop, gathered = look_up(rows, block, stride, anchors, documents, offsets, first, places, gathered)
        numbers, origins, lengths = gathered[0], gathered[1], gathered[2]
        for n in range(block, stop):
            at = min(rows[n] * row_tokens, tokens - row_ahead)
            end = min(rows[n] * row_tokens + row_tokens, tokens)
            splits[n] = used
            if at >= end:
                continue
            before = used
            i = places[1, n - block]
            edge = places[0, n - block] * stride * row_tokens - places[2, n - block]
            while edge + lengths[i] <= at:
                edge += lengths[i]
                i += 1
            while True:
                left = lengths[i]
                if left > 0:
                    if used + 2 > capacity:
                        return n, before
                    taken = min(end, edge + left) - at
                    begin[used] = origins[i] + at - edge
                    length[used] = taken
                    document[used] = numbers[i]
                    start[used] = at - edge
                    flags[used] = (at == edge) * HEAD + (at + taken == edge + left) * TAIL
                    used += 1
                    at += taken
                    if at == end:
                        break
                edge += left
                i += 1
            if row_ahead and end == rows[n] * row_tokens + row_tokens and end < tokens:
                if at < edge + lengths[i]:
                    flags[used - 1] |= AHEAD
                else:
                    i += 1
                    while lengths[i] == 0:
                        i += 1
                    if origins[i] == begin[used - 1] + length[used - 1]:
                        flags[used - 1] |= AHEAD
                    else:
                        begin[used] = origins[i]
                        length[used] = 0
                        document[used] = numbers[i]
                        start[used] = 0
                        flags[used] = AHEAD
                        used += 1
        block = stop
    splits[len(rows)] = used
    return len(rows), used


@kernel("void(int64[::1], int32[::1], int64[::1], int64, int64[:, ::1], int64, int64[::1])")
def _starts(entries: Any, documents: Any, offsets: Any, first: int, anchors: Any, step: int, out: Any) -> None:
    for n in range(len(entries)):
        low = 0
        high = len(anchors)
        while high - low > 1:
            middle = (low + high) // 2
            if anchors[middle, 0] <= entries[n]:
                low = middle
            else:
                high = middle
        k = anchors[low, 0]
        at = low * step - anchors[low, 1]
        while k < entries[n]:
            d = np.int64(documents[k]) - first
            at += offsets[d + 1] - offsets[d]
            k += 1
        out[n] = at


@inlined
def owner_of(edges: Any, position: int) -> Any:
    """Return the last document that begins at or before `position`."""
    low = 0
    high = len(edges) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if edges[middle] <= position:
            low = middle
        else:
            high = middle
    return low


@kernel("void(int64[::1], int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], uint8[::1])")
def _own(edges: Any, first: int, used: int, begin: Any, length: Any, document: Any, start: Any, flags: Any) -> None:
    """Make document, start, HEAD and TAIL those of the documents that own the sequences."""
    for k in range(used):
        d = owner_of(edges, begin[k])
        document[k] = d + first
        start[k] = begin[k] - edges[d]
        mark = flags[k] & AHEAD
        if length[k] > 0:
            mark |= (begin[k] == edges[d]) * HEAD + (begin[k] + length[k] == edges[d + 1]) * TAIL
        flags[k] = mark
