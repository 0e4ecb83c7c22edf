"""The kernel of a batch: extents cut at shard edges, and their ids written into rows; and the first half of it alone.

It goes over extents in the table's order. Nothing in them is done per token but the copy: an extent of 20 tokens costs
20 tokens, and one search among the shards of its corpus. What is read next is asked for while something else is copied:
rows lie far apart, and memory that is only waited for would take longer than the copy.

Tables that both take have one row an item. `corpora`: first token, tokens, first edge, shards, first shard. `shards`: bytes
an id, kind (a place in `gather_stored.KINDS`), least and greatest id allowed (crossed: any), and the batch that last used
it; `bases` is where their first ids are, 0 for those not in memory. `pieces`: shard, first token there, tokens, address,
kind; those of extent e are ``first[e]:first[e + 1]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenreel.feed.gather_stored import (
    ask_to_read,
    stored_i8,
    stored_i16,
    stored_i32,
    stored_i64,
    stored_u8,
    stored_u16,
    stored_u32,
)
from tokenreel.order.kernels import inlined, kernel, read_only

AHEAD, CUT, PAD = 4, 8, 16
"""Bits of `Flag`, as constants that are compiled in."""

FULL, MALFORMED, LONG = -1, -2, -3
"""What `cut` says in place of a number of pieces: no room for more, a table that `SpanTable.check` refuses, a long sample."""
DONE, NOT_DONE = -1, -2
"""What `gather_rows` says in place of a piece that holds an id out of range: all is written, or nothing could be."""

WIDTH, KIND, LOWEST, HIGHEST, STAMP = range(5)
SHARD, LOW, TOKENS, ADDRESS, PIECE_KIND = range(5)
NEXT, LINE, ASKED = 4, 64, 512
"""How many pieces ahead memory is asked for; bytes that it gives at a time; bytes asked for of a piece: the rest follows."""

_I64, _I32, _U8 = read_only("int64"), read_only("int32"), read_only("uint8")
_TABLE = "int64[:, ::1]"


@inlined
def cut_all(  # noqa: C901, PLR0912, PLR0913, PLR0917
    splits: Any, corpus: Any, begin: Any, length: Any, flags: Any, row_tokens: int, stamp: int, corpora: Any, edges: Any,
    shards: Any, bases: Any, first: Any, pieces: Any, seen: Any,
) -> Any:  # fmt: skip
    """Cut extents, each with its look-ahead, at shard edges: what `cut` does. `seen` may have no items."""
    used = 0
    known = 0
    samples = len(splits) - 1
    count = len(begin)
    if samples < 0 or splits[0] != 0 or splits[samples] != count:
        return MALFORMED, 0, 0
    if len(corpus) != count or len(length) != count or len(flags) != count:
        return MALFORMED, 0, 0
    for row in range(samples):
        if splits[row + 1] < splits[row] or splits[row + 1] > len(begin):
            return MALFORMED, row, 0
        filled = 0
        for e in range(splits[row], splits[row + 1]):
            first[e] = used
            ahead = 1 if flags[e] & AHEAD else 0
            if length[e] < 1 - ahead or (ahead and e + 1 != splits[row + 1]):
                return MALFORMED, row, 0
            if length[e] > row_tokens - filled:
                return LONG, row, 0
            filled += length[e]
            if flags[e] & PAD:
                continue
            c = corpus[e]
            if c < 0 or c >= len(corpora):
                return MALFORMED, row, 0
            if begin[e] < 0 or begin[e] > corpora[c, 1] - length[e] - ahead:
                return MALFORMED, row, 0
            at = begin[e] + corpora[c, 0]
            end = at + length[e] + ahead
            base = corpora[c, 2]
            left = 0
            right = corpora[c, 3]
            while right - left > 1:
                middle = (left + right) // 2
                if edges[base + middle] <= at:
                    left = middle
                else:
                    right = middle
            while at < end:
                if used == len(pieces):
                    return FULL, row, 0
                stop = min(end, edges[base + left + 1])
                if stop > at:
                    s = corpora[c, 4] + left
                    low = at - edges[base + left]
                    pieces[used, SHARD] = s
                    pieces[used, LOW] = low
                    pieces[used, TOKENS] = stop - at
                    pieces[used, ADDRESS] = bases[s] + low * shards[s, WIDTH] if bases[s] != 0 else 0
                    pieces[used, PIECE_KIND] = shards[s, KIND]
                    if len(seen) > 0 and shards[s, STAMP] != stamp:
                        shards[s, STAMP] = stamp
                        seen[known] = s
                        known += 1
                    used += 1
                    at = stop
                left += 1
    first[len(begin)] = used
    return used, known, 0


@kernel(
    f"UniTuple(int64, 3)({_I64}, {_I32}, {_I64}, {_I64}, {_U8}, int64, int64, {_TABLE}, {_I64}, {_TABLE}, {_I64}, "
    f"int64[::1], {_TABLE}, int64[::1])"
)
def cut(  # noqa: PLR0913, PLR0917
    splits: Any, corpus: Any, begin: Any, length: Any, flags: Any, row_tokens: int, stamp: int, corpora: Any, edges: Any,
    shards: Any, bases: Any, first: Any, pieces: Any, seen: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Fill `first` and `pieces`. Return (pieces, shards, 0), or (what is wrong, the sample, 0).

    Shards in use are put into `seen`, each once, and bear `stamp`.
    """
    done: tuple[int, int, int] = cut_all(
        splits, corpus, begin, length, flags, row_tokens, stamp, corpora, edges, shards, bases, first, pieces, seen
    )
    return done


@inlined
def within(source: Any, lowest: int, highest: int) -> Any:
    """Return whether all of at least one id are within ``lowest .. highest``."""
    small = source[0]
    large = source[0]
    for k in range(len(source)):
        small = min(small, source[k])
        large = max(large, source[k])
    return small >= lowest and large <= highest


@inlined
def spread(source: Any, skip: int, ids: Any, labels: Any) -> None:
    """Copy a piece to `ids`, and from number `skip` on to `labels`."""
    for k in range(len(ids)):
        ids[k] = source[k]
    later = source[skip:]
    for k in range(len(labels)):
        labels[k] = later[k]


@inlined
def allowed(kind: int, address: int, count: int, lowest: int, highest: int) -> Any:
    """`within` of a piece of any kind."""
    if kind == 3:
        return within(stored_u16(address, count), lowest, highest)
    if kind == 4:
        return within(stored_i32(address, count), lowest, highest)
    if kind == 5:
        return within(stored_u32(address, count), lowest, highest)
    if kind == 0:
        return within(stored_u8(address, count), lowest, highest)
    if kind == 1:
        return within(stored_i8(address, count), lowest, highest)
    if kind == 2:
        return within(stored_i16(address, count), lowest, highest)
    return within(stored_i64(address, count), lowest, highest)


@inlined
def ask_for_piece(pieces: Any, p: int, shards: Any) -> None:
    """Have the beginning of a piece fetched."""
    address = pieces[p, ADDRESS]
    for k in range(0, min(ASKED, pieces[p, TOKENS] * shards[pieces[p, SHARD], WIDTH]), LINE):
        ask_to_read(address + k)


def _signature(ids: str) -> str:
    return (
        f"int64(int64, int64, {_I64}, {_I32}, {_I64}, {_I64}, {_U8}, int64, {_TABLE}, {_I64}, {_TABLE}, {_I64}, int64[::1], "
        f"{_TABLE}, int64, int64, int64, {ids}, {ids})"
    )


@kernel(_signature("int32[:, ::1]"), _signature("int64[:, ::1]"))
def gather_rows(  # noqa: C901, PLR0912, PLR0913, PLR0915, PLR0917
    first_row: int, end_row: int, splits: Any, corpus: Any, begin: Any, length: Any, flags: Any, row_tokens: int,
    corpora: Any, edges: Any, shards: Any, bases: Any, first: Any, pieces: Any, pad: int, none: int, breaks: int,
    ids: Any, labels: Any,
) -> int:  # fmt: skip
    """Write the ids and the labels of rows [first_row, end_row); return `DONE`, or a piece that holds an id out of range.

    Where `first` has no items extents are cut here; `NOT_DONE` then says that the table is wrong, that a shard is not in
    memory, or that an id is out of range. A label is the id that follows in its sample; where there is none, and with
    `breaks` where an extent was cut, it is `none`. `labels` may have no rows: then there are none.
    """
    here = len(first) == 0
    if here:
        first = np.empty(len(begin) + 1, np.int64)
        pieces = np.empty((len(begin) + 64, 5), np.int64)
        used, _, _ = cut_all(
            splits, corpus, begin, length, flags, row_tokens, 0, corpora, edges, shards, bases, first, pieces, first[:0]
        )  # fmt: skip
        if used < 0:
            return NOT_DONE
        for p in range(used):
            if pieces[p, ADDRESS] == 0:
                return NOT_DONE
    labelled = len(labels) > 0
    last = first[splits[end_row]]
    for p in range(first[splits[first_row]], min(first[splits[first_row]] + NEXT, last)):
        ask_for_piece(pieces, p, shards)
    for row in range(first_row, end_row):
        row_ids = ids[row]
        row_labels = labels[row] if labelled else ids[row, :0]
        column = 0
        broken = True
        ahead = False
        for e in range(splits[row], splits[row + 1]):
            if flags[e] & PAD:
                if labelled and column > 0:
                    row_labels[column - 1] = none
                for k in range(column, column + length[e]):
                    row_ids[k] = pad
                if labelled:
                    for k in range(column, column + length[e]):
                        row_labels[k] = none
                column += length[e]
                broken = True
                continue
            inputs = length[e]
            ahead = flags[e] & AHEAD != 0
            for p in range(first[e], first[e + 1]):
                count = pieces[p, TOKENS]
                address = pieces[p, ADDRESS]
                kind = pieces[p, PIECE_KIND]
                shard = pieces[p, SHARD]
                taken = min(count, inputs)
                skip = 0
                if broken:
                    skip = 1
                    if labelled and column > 0:
                        row_labels[column - 1] = none
                to = row_ids[column : column + taken]
                at = column - 1 + skip
                label = row_labels[at : at + count - skip] if labelled else row_labels
                least = shards[shard, LOWEST]
                greatest = shards[shard, HIGHEST]
                if least <= greatest and not allowed(kind, address, count, least, greatest):
                    return NOT_DONE if here else p
                if p + NEXT < last:
                    ask_for_piece(pieces, p + NEXT, shards)
                if kind == 3:
                    spread(stored_u16(address, count), skip, to, label)
                elif kind == 4:
                    spread(stored_i32(address, count), skip, to, label)
                elif kind == 5:
                    spread(stored_u32(address, count), skip, to, label)
                elif kind == 0:
                    spread(stored_u8(address, count), skip, to, label)
                elif kind == 1:
                    spread(stored_i8(address, count), skip, to, label)
                elif kind == 2:
                    spread(stored_i16(address, count), skip, to, label)
                else:
                    spread(stored_i64(address, count), skip, to, label)
                column += taken
                inputs -= taken
                broken = False
            if breaks and flags[e] & CUT and not ahead:
                broken = True
        if labelled and column > 0 and not (ahead and not broken):
            row_labels[column - 1] = none
        for k in range(column, row_tokens):
            row_ids[k] = pad
        if labelled:
            for k in range(column, row_tokens):
                row_labels[k] = none
    return DONE
