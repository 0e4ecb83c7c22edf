"""Rows as extents: of a plan, and of documents laid end to end. Every extent lies in one document and knows it.

A row's last extent has AHEAD where its document goes on, and only there: no label crosses from one document into another.
Rows of crop and bos-aligned have one more token of their own, which is their last label and in no other row: an extent of
length 0 where it begins a document. CUT says that an extent does not end where its document does and that no row goes on with
it. Room that is left is one PAD.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import inlined, kernel
from tokenreel.order.windows import covered
from tokenreel.pack.packed_policy import CLIP, FIRST, FULL, LAST, POWER, Packing
from tokenreel.pack.plan import rows_alone
from tokenreel.pack.plan_sizes import READ_I64, READ_U32, SHIFT, block_of, holder_of, offset_of
from tokenreel.spans import UNRESOLVED, SpanTable

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.pack.plan import Plan
    from tokenreel.pack.plan_sizes import Sizes

    I64 = npt.NDArray[np.int64]

HEAD, TAIL, AHEAD, CUT, PAD = 1, 2, 4, 8, 16
ALL = 0xFF
NO = UNRESOLVED
NUMBER = (1 << 20) - 1
"""The part of an entry that is a document."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedRows:
    """Rows that documents fill alone, and rows of a plan."""

    sizes: Sizes
    plan: Plan
    packing: Packing
    together: int = 1
    """Rows that are there together or not at all: those of all ranks of a batch."""
    clipped_labels: bool = False
    """Whether a document that is cut before the row's end has the row's next token for its last label, as any other has."""
    _inverse: dict[int, tuple[I64, I64]] = field(default_factory=dict, repr=False)
    """By window: its entries' documents in order, and the packed row of each."""

    @property
    def rows(self) -> int:
        """Rows of one pass."""
        return self.plan.rows // self.together * self.together

    def extents(self, rows: I64) -> SpanTable:
        """Return rows of the pass as a table, in the order asked. About 50 ns an extent."""
        sizes, plan, packing = self.sizes, self.plan, self.packing
        asked = np.ascontiguousarray(rows, dtype=np.int64)
        windows, bound = plan.windows.reshape(-1), np.zeros(1, dtype=np.int64)
        _bound(asked, plan.firsts, windows, bound)
        splits, columns = np.zeros(len(asked) + 1, dtype=np.int64), _columns(int(bound[0]))
        said = (packing.takes, packing.window, packing.direct, packing.piece, packing.longest or 0)
        more = (packing.shortest or 0, packing.own_ahead, self.clipped_labels)
        options = np.array([*said, *more], dtype=np.int64)
        _lay_planned(
            asked,
            sizes.lengths,
            sizes.begins,
            plan.single,
            plan.entries,
            plan.firsts,
            windows,
            options,
            splits,
            *columns,
        )
        return _table(splits, columns)

    def rows_of(self, documents: I64) -> tuple[I64, I64]:
        """Return pairs of (place in `documents`, row) for every row that holds part of one."""
        single = np.zeros(2 * len(documents), dtype=np.int64)
        kind, room = self.packing.direct, self.packing.takes
        _alone(np.ascontiguousarray(documents), self.sizes.lengths, self.plan.single, room, kind, single)
        first, count = single[::2], single[1::2]
        home = documents // self.packing.window
        which = [np.repeat(np.arange(len(documents), dtype=np.int64), count)]
        within = np.arange(int(count.sum()), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
        found = [(first + self.plan.windows[home, 1])[which[0]] + within]
        for w in np.unique(home).tolist():
            mine = np.flatnonzero(home == w)
            held, row = self._inverse_of(w)
            local = documents[mine] - w * self.packing.window
            low, high = np.searchsorted(held, local, side="left"), np.searchsorted(held, local, side="right")
            which.append(np.repeat(mine, high - low))
            steps = np.arange(len(which[-1]), dtype=np.int64) - np.repeat(
                np.cumsum(high - low) - (high - low), high - low
            )
            found.append(row[np.repeat(low, high - low) + steps])
        places, rows = np.concatenate(which), np.concatenate(found)
        there = rows < self.rows
        return places[there], rows[there]

    def _inverse_of(self, w: int) -> tuple[I64, I64]:
        made = self._inverse.get(w)
        if made is None:
            (_, rows_before, low), (singles, rows_after, high) = self.plan.windows[w : w + 2].tolist()
            held = self.plan.entries[low:high].astype(np.int64) & NUMBER
            order = np.argsort(held, kind="stable")
            firsts = self.plan.firsts[rows_before:rows_after].astype(np.int64)
            row = np.searchsorted(firsts, order, side="right") - 1 + rows_before + singles
            made = self._inverse[w] = held[order], row
        return made


@dataclass(frozen=True, slots=True, eq=False)
class ConcatRows:
    """Documents end to end in rows of one length; the last row has what is left, and padding."""

    sizes: Sizes
    row_tokens: int
    drop: bool = False
    """Whether a last row that documents do not fill is none."""

    @property
    def rows(self) -> int:
        """Rows of one pass."""
        tokens, room = self.sizes.tokens, self.row_tokens
        return tokens // room if self.drop else -(-tokens // room)

    def extents(self, rows: I64) -> SpanTable:
        """Return rows of the pass as a table, in the order asked. About 30 ns an extent."""
        asked = np.ascontiguousarray(rows, dtype=np.int64)
        splits = np.zeros(len(asked) + 1, dtype=np.int64)
        room = int(len(asked) * (self.sizes.documents / max(1, self.rows) + 2) * 1.2) + 64
        while True:
            columns = _columns(room)
            lengths, begins = self.sizes.lengths, self.sizes.begins
            if _lay_end_to_end(asked, self.row_tokens, self.sizes.tokens, lengths, begins, splits, *columns) >= 0:
                return _table(splits, columns)
            room *= 2

    def rows_of(self, documents: I64) -> tuple[I64, I64]:
        """Return pairs of (place in `documents`, row) for every row that holds part of one."""
        begin, end = self.sizes.offsets_at(documents), self.sizes.offsets_at(documents + 1)
        return covered(begin, end, self.row_tokens, self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class FlatRows:
    """The stream in rows, wherever its documents begin; the label of a row's last token is the stream's next token."""

    tokens: int
    row_tokens: int

    @property
    def rows(self) -> int:
        """Rows of one pass."""
        return -(-self.tokens // self.row_tokens)

    def extents(self, rows: I64) -> SpanTable:
        """Return rows of the pass: one unresolved extent each."""
        begin = np.asarray(rows, dtype=np.int64) * self.row_tokens
        length = np.minimum(self.row_tokens, self.tokens - begin)
        short = length < self.row_tokens
        splits = np.concatenate(([0], np.cumsum(1 + short)))
        where = splits[:-1]
        columns = _columns(int(splits[-1]))
        begins, lengths, documents, starts = columns[0].reshape(4, -1)
        flags = columns[1]
        begins[:], flags[:] = 0, PAD
        documents[:] = starts[:] = UNRESOLVED
        begins[where], lengths[where] = begin, length
        flags[where] = np.where(begin + length < self.tokens, AHEAD, 0)
        lengths[where[short] + 1] = self.row_tokens - length[short]
        return _table(splits, columns)

    def rows_of(self, documents: I64) -> tuple[I64, I64]:  # noqa: ARG002 (as of other rows)
        """Return nothing: where documents are is not known."""
        none = np.empty(0, dtype=np.int64)
        return none, none


def _columns(capacity: int) -> tuple[I64, Any]:
    """Return room for extents: begin, length, document and start, column by column, and flags."""
    return np.empty(4 * capacity, dtype=np.int64), np.empty(capacity, dtype=np.uint8)


def _table(splits: I64, columns: tuple[I64, Any]) -> SpanTable:
    used = int(splits[-1])
    begin, length, document, start = columns[0].reshape(4, -1)[:, :used]
    table = SpanTable(splits, np.zeros(used, dtype=np.int32), begin, length, document, start, columns[1][:used])
    for column in table.columns():
        column.flags.writeable = False
    return table


@kernel(f"void({READ_I64}, {READ_U32}, {READ_I64}, int64[::1])")
def _bound(rows: Any, firsts: Any, windows: Any, out: Any) -> None:
    """Count the extents that rows may have at most: their entries, and padding."""
    edges = windows[0::3] + windows[1::3]
    for k in range(len(rows)):
        w = block_of(edges, rows[k])
        local = rows[k] - edges[w] - (windows[3 * w + 3] - windows[3 * w])
        out[0] += 2
        if local >= 0:
            out[0] += entries_of(firsts, windows, w, windows[3 * w + 1] + local)


@inlined
def entries_of(firsts: Any, windows: Any, w: Any, row: Any) -> Any:
    """Return the number of entries of a packed row of window `w`."""
    end = windows[3 * w + 5] - windows[3 * w + 2]
    if row + 1 < windows[3 * w + 4]:
        end = np.int64(firsts[row + 1])
    return end - np.int64(firsts[row])


@inlined
def alone_at(lengths: Any, alone: Any, low: Any, high: Any, wanted: Any, room: Any, direct: Any) -> Any:
    """Return the document, of blocks [low, high], that fills one of the rows alone, and which of its rows it is."""
    while high - low > 1:
        middle = (low + high) >> 1
        if alone[middle] <= wanted:
            low = middle
        else:
            high = middle
    chunk = wanted - alone[low]
    d = low << SHIFT
    of_it = rows_alone(np.int64(lengths[d]), room, direct)
    while chunk >= of_it:
        chunk -= of_it
        d += 1
        of_it = rows_alone(np.int64(lengths[d]), room, direct)
    return d, chunk


@inlined
def piece_alone(size: Any, chunk: Any, said: Any) -> Any:
    """Return start, tokens and flags of one of the rows that a document fills alone."""
    room, direct = said[0], said[2]
    start = chunk * room
    taken = min(room, size - start)
    rest = size - start - taken
    mark = HEAD if chunk == 0 else 0
    if rest == 0:
        mark |= TAIL
    elif direct in (FIRST, FULL) or rest < said[5]:
        mark |= CUT | AHEAD
    else:
        mark |= AHEAD
    return start, taken, mark


@inlined
def piece_packed(size: Any, power: Any, left: Any, said: Any) -> Any:
    """Return start, tokens and flags of a document of `size` tokens in a packed row with room for `left` more."""
    room, piece = said[0], said[3]
    start: Any = np.int64(0)
    taken = size
    if piece == CLIP:
        taken = min(size, left)
        if said[4] > 0:
            taken = min(taken, said[4])
    elif piece == LAST:
        taken = min(size, room)
        start = size - taken
    elif piece == POWER:
        start = (size >> (power + 1)) << (power + 1)
        taken = np.int64(1) << power
    else:
        start = size // room * room if size > room else np.int64(0)
        taken = min(size - start, left)
    mark = HEAD if start == 0 else 0
    if start + taken == size:
        mark |= TAIL
    elif piece != POWER or size - start - taken < said[5]:
        mark |= CUT
    return start, taken, mark


@inlined
def full_row_s_last(length: Any, mark: Any, said: Any) -> Any:
    """Return input tokens and flags of the last extent of a row without room: what it is labelled with is AHEAD."""
    if said[6] == 0:
        return length, mark if mark & TAIL else mark | AHEAD
    # Its last token is the row's last label, and no input.
    if length == 1:
        return length - 1, mark & 0 | AHEAD
    return length - 1, mark & HEAD | AHEAD | CUT


@kernel(
    f"void({READ_I64}, {READ_U32}, {READ_I64}, {READ_I64}, {READ_U32}, {READ_U32}, {READ_I64}, {READ_I64}, int64[::1], "
    "int64[::1], uint8[::1])"
)
def _lay_planned(
    rows: Any,
    lengths: Any,
    begins: Any,
    alone: Any,
    entries: Any,
    firsts: Any,
    windows: Any,
    said: Any,
    splits: Any,
    out: Any,
    flags: Any,
) -> None:
    edges = windows[0::3] + windows[1::3]
    room, n = said[0], len(flags)
    # Step by step for all rows, so that no memory is waited for one row at a time.
    home = np.empty(len(rows), dtype=np.int64)
    low = np.empty(len(rows), dtype=np.int64)
    used: Any = np.int64(0)
    for k in range(len(rows)):
        w = block_of(edges, rows[k])
        local = rows[k] - edges[w] - (windows[3 * w + 3] - windows[3 * w])
        splits[k] = used
        if local < 0:
            home[k] = -1 - w
            low[k] = windows[3 * w + 3] + local
            used += 1
        else:
            home[k] = w
            low[k] = windows[3 * w + 2] + np.int64(firsts[windows[3 * w + 1] + local])
            used += entries_of(firsts, windows, w, windows[3 * w + 1] + local)
    splits[len(rows)] = used
    document = np.empty(used, dtype=np.int64)
    which = np.empty(used, dtype=np.int64)
    for k in range(len(rows)):
        at = splits[k]
        if home[k] < 0:
            first = (-1 - home[k]) * said[1] >> SHIFT
            last = min(first + (said[1] >> SHIFT), len(alone) - 1)
            document[at], which[at] = alone_at(lengths, alone, first, last, low[k], room, said[2])
        else:
            for e in range(splits[k + 1] - at):
                entry = np.int64(entries[low[k] + e])
                document[at + e] = home[k] * said[1] + (entry & NUMBER)
                which[at + e] = entry >> 20
    offset = np.empty(used, dtype=np.int64)
    size = np.empty(used, dtype=np.int64)
    for e in range(used):
        offset[e] = offset_of(lengths, begins, document[e])
        size[e] = lengths[document[e]]
    put = 0
    for k in range(len(rows)):
        filled: Any = np.int64(0)
        first, last = splits[k], splits[k + 1]
        splits[k] = put
        for e in range(first, last):
            if home[k] < 0:
                start, taken, mark = piece_alone(size[e], which[e], said)
            else:
                start, taken, mark = piece_packed(size[e], which[e], room - filled, said)
            out[put], out[n + put], out[2 * n + put], out[3 * n + put] = offset[e] + start, taken, document[e], start
            flags[put] = mark
            if said[7] == 1 and e + 1 < last:
                flags[put] &= ALL ^ CUT
            filled += taken
            put += 1
        inputs = room - said[6]
        if filled == room:
            out[n + put - 1], flags[put - 1] = full_row_s_last(out[n + put - 1], flags[put - 1], said)
        if filled < inputs:
            out[put], out[n + put], out[2 * n + put], out[3 * n + put] = 0, inputs - filled, NO, NO
            flags[put] = PAD
            put += 1
    splits[len(rows)] = put


@kernel(f"int64({READ_I64}, int64, int64, {READ_U32}, {READ_I64}, int64[::1], int64[::1], uint8[::1])")
def _lay_end_to_end(
    rows: Any, room: Any, tokens: Any, lengths: Any, begins: Any, splits: Any, out: Any, flags: Any
) -> int:
    """Return the extents, or -1 where there is no room for them."""
    e, n = 0, len(flags)
    for k in range(len(rows)):
        at = rows[k] * room
        high = min(at + room, tokens)
        short = at + room - high
        d, offset = holder_of(lengths, begins, at)
        while at < high:
            end = offset + np.int64(lengths[d])
            stop = min(end, high)
            if stop > at:
                if e + 2 > n:
                    return -1
                out[e], out[n + e], out[2 * n + e], out[3 * n + e] = at, stop - at, d, at - offset
                mark = HEAD if at == offset else 0
                flags[e] = mark | TAIL if stop == end else mark | AHEAD
                e += 1
            at = stop
            offset = end
            d += 1
        if short:
            out[e], out[n + e], out[2 * n + e], out[3 * n + e] = 0, short, NO, NO
            flags[e] = PAD
            e += 1
        splits[k + 1] = e
    return e


@kernel(f"void({READ_I64}, {READ_U32}, {READ_I64}, int64, int64, int64[::1])")
def _alone(documents: Any, lengths: Any, alone: Any, room: int, kind: int, out: Any) -> None:
    """Fill (first row, rows) that each document fills alone, rows counted among those."""
    for k in range(len(documents)):
        block = documents[k] >> SHIFT
        before = alone[block]
        for d in range(block << SHIFT, documents[k]):
            before += rows_alone(np.int64(lengths[d]), room, kind)
        out[2 * k] = before
        out[2 * k + 1] = rows_alone(np.int64(lengths[documents[k]]), room, kind)
