"""The two kernels of a batch: extents cut at shard edges, and their ids written into rows.

Both go over extents in the table's order. Nothing in them is done per token but the copy: an extent of 20 tokens costs
20 tokens, and one search among the shards of its corpus.
"""

from __future__ import annotations

from typing import Any

from tokenreel.feed.gather_stored import (
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

_I64, _I32, _U8 = read_only("int64"), read_only("int32"), read_only("uint8")


@kernel(
    f"UniTuple(int64, 2)({_I64}, {_I32}, {_I64}, {_I64}, {_U8}, int64, int64[:, ::1], {_I64}, "
    "uint8[::1], int64[::1], int32[::1], int64[::1], int64[::1])"
)
def cut(  # noqa: PLR0913, PLR0917
    splits: Any, corpus: Any, begin: Any, length: Any, flags: Any, row_tokens: int, corpora: Any, edges: Any,
    touched: Any, first: Any, shard: Any, low: Any, tokens: Any,
) -> tuple[int, int]:  # fmt: skip
    """Cut extents, each with its look-ahead, at shard edges. Return (pieces, 0), or (what is wrong, where).

    Rows of `corpora` are first token, tokens, first edge, shards, first shard. Pieces of extent e are
    ``first[e]:first[e + 1]``: `tokens` ids from token `low` of `shard`. Shards in use are marked in `touched`.
    """
    used = 0
    samples = len(splits) - 1
    if samples < 0 or splits[0] != 0 or splits[samples] != len(begin):
        return MALFORMED, 0
    for row in range(samples):
        if splits[row + 1] < splits[row] or splits[row + 1] > len(begin):
            return MALFORMED, row
        filled = 0
        for e in range(splits[row], splits[row + 1]):
            first[e] = used
            ahead = 1 if flags[e] & AHEAD else 0
            if length[e] < 1 - ahead or (ahead and e + 1 != splits[row + 1]):
                return MALFORMED, row
            if length[e] > row_tokens - filled:
                return LONG, row
            filled += length[e]
            if flags[e] & PAD:
                continue
            c = corpus[e]
            if c < 0 or c >= len(corpora):
                return MALFORMED, row
            if begin[e] < 0 or begin[e] > corpora[c, 1] - length[e] - ahead:
                return MALFORMED, row
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
                if used == len(shard):
                    return FULL, row
                stop = min(end, edges[base + left + 1])
                if stop > at:
                    shard[used] = corpora[c, 4] + left
                    low[used] = at - edges[base + left]
                    tokens[used] = stop - at
                    touched[corpora[c, 4] + left] = 1
                    used += 1
                    at = stop
                left += 1
    first[len(begin)] = used
    return used, 0


@inlined
def spread(source: Any, inputs: int, skip: int, ids: Any, labels: Any, lowest: int, highest: int) -> Any:
    """Write ids, and the labels beginning with number `skip`; return whether all are within ``lowest .. highest``."""
    if lowest <= highest:
        small = source[0]
        large = source[0]
        for k in range(len(source)):
            small = min(small, source[k])
            large = max(large, source[k])
        if small < lowest or large > highest:
            return False
    for k in range(inputs):
        ids[k] = source[k]
    later = source[skip:]
    for k in range(len(labels)):
        labels[k] = later[k]
    return True


def _signature(ids: str) -> str:
    return (
        f"int64(int64, int64, {_I64}, {_I64}, {_U8}, {_I64}, {_I32}, {_I64}, {_I64}, {_U8}, {_I64}, {_I64}, int64, "
        f"int64, int64, int64, {ids}, {ids})"
    )


@kernel(_signature("int32[::1]"), _signature("int64[::1]"))
def copy_rows(  # noqa: C901, PLR0912, PLR0913, PLR0917
    first_row: int, end_row: int, splits: Any, length: Any, flags: Any, first: Any, shard: Any, address: Any,
    tokens: Any, kind: Any, lowest: Any, highest: Any, row_tokens: int, pad: int, none: int, breaks: int, ids: Any,
    labels: Any,
) -> int:  # fmt: skip
    """Write the ids and the labels of rows [first_row, end_row); return a piece that holds an id out of range, or -1.

    A label is the id that follows in its sample; where there is none, and with `breaks` where an extent was cut, it is
    `none`. `labels` may have no items: then there are none. `lowest` and `highest` are by shard; no check where they cross.
    """
    labelled = len(labels) > 0
    for row in range(first_row, end_row):
        at = row * row_tokens
        column = 0
        broken = True
        ahead = False
        for e in range(splits[row], splits[row + 1]):
            if flags[e] & PAD:
                if labelled and column > 0:
                    labels[at + column - 1] = none
                for k in range(at + column, at + column + length[e]):
                    ids[k] = pad
                if labelled:
                    for k in range(at + column, at + column + length[e]):
                        labels[k] = none
                column += length[e]
                broken = True
                continue
            inputs = length[e]
            ahead = flags[e] & AHEAD != 0
            for p in range(first[e], first[e + 1]):
                count = tokens[p]
                taken = min(count, inputs)
                skip = 0
                if broken:
                    skip = 1
                    if labelled and column > 0:
                        labels[at + column - 1] = none
                to = ids[at + column : at + column + taken]
                begin = at + column - 1 + skip
                label = labels[begin : begin + count - skip] if labelled else labels
                a = address[p]
                k = kind[p]
                low = lowest[shard[p]]
                high = highest[shard[p]]
                if k == 3:
                    good = spread(stored_u16(a, count), taken, skip, to, label, low, high)
                elif k == 4:
                    good = spread(stored_i32(a, count), taken, skip, to, label, low, high)
                elif k == 5:
                    good = spread(stored_u32(a, count), taken, skip, to, label, low, high)
                elif k == 0:
                    good = spread(stored_u8(a, count), taken, skip, to, label, low, high)
                elif k == 1:
                    good = spread(stored_i8(a, count), taken, skip, to, label, low, high)
                elif k == 2:
                    good = spread(stored_i16(a, count), taken, skip, to, label, low, high)
                else:
                    good = spread(stored_i64(a, count), taken, skip, to, label, low, high)
                if not good:
                    return p
                column += taken
                inputs -= taken
                broken = False
            if breaks and flags[e] & CUT and not ahead:
                broken = True
        if labelled and column > 0 and not (ahead and not broken):
            labels[at + column - 1] = none
        for k in range(at + column, at + row_tokens):
            ids[k] = pad
        if labelled:
            for k in range(at + column, at + row_tokens):
                labels[k] = none
    return -1
