"""Edges of the pieces of rows, as kernels for sequences of varying length take them: int32, from 0 to the end, no gap.

Padding is a piece of its own, so that every token lies in exactly one. `max_seqlen` is the longest piece, padding included:
a kernel told of a shorter one returns wrong results without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.errors import OrderError
from tokenreel.order.kernels import inlined, kernel, read_only

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenreel.pack.policy import RowPolicy
    from tokenreel.spans import SpanTable

CUT, PAD = 8, 16
_I64 = read_only("int64")
_COLUMNS = f"{_I64}, {read_only('int32')}, {_I64}, {_I64}, {_I64}, {read_only('uint8')}, int64"


def row_edges(
    table: SpanTable, edges: npt.NDArray[Any], longest: npt.NDArray[Any], row_tokens: int, low: int, high: int
) -> None:
    """Fill the edges of rows [low, high), each filled up with `row_tokens`: its last edges are then empty pieces.

    Raises `OrderError` (PCK002) for a row with more pieces than `edges` has room for.
    """
    bad = _row_edges(
        low, high, table.splits, table.corpus, table.begin, table.length, table.document, table.flags, row_tokens,
        edges, longest,
    )  # fmt: skip
    if bad >= 0:
        raise _no_room(f"row {bad}", edges.shape[1])


def batch_edges(
    table: SpanTable, policy: RowPolicy, row_tokens: int, edges: npt.NDArray[Any], longest: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Fill the edges of all rows end to end, and return the part of `edges` that holds them, or all of it filled up.

    Every row's edge is an edge. Raises `OrderError` (PCK002) for more pieces than `cu_seqlens_length` has room for.
    """
    used, most = _batch_edges(
        0, table.samples, table.splits, table.corpus, table.begin, table.length, table.document, table.flags,
        row_tokens, edges,
    )  # fmt: skip
    if used < 0:
        raise _no_room("the batch", len(edges))
    longest[...] = most
    if policy.cu_seqlens_length is None:
        return edges[:used]
    edges[used:] = table.samples * row_tokens
    return edges


def _no_room(what: str, room: int) -> OrderError:
    return OrderError("PCK002", what, expected=f"at most {room - 1} pieces", found="more")


@inlined
def goes_on(e: int, corpus: Any, begin: Any, length: Any, document: Any, flags: Any) -> Any:
    """Return whether extent `e` is the same piece as the one before it; padding goes on with padding."""
    if flags[e] & flags[e - 1] & PAD:
        return True
    return (
        corpus[e] == corpus[e - 1]
        and document[e] == document[e - 1]
        and begin[e] == begin[e - 1] + length[e - 1]
        and flags[e - 1] & (CUT | PAD) == 0
        and flags[e] & PAD == 0
    )


@inlined
def of_row(
    row: int, splits: Any, corpus: Any, begin: Any, length: Any, document: Any, flags: Any, row_tokens: int, base: int,
    edges: Any, used: int,
) -> Any:  # fmt: skip
    """Append the ends of a row's pieces to edges[used:]. Return (edges used or -1, longest piece)."""
    column = 0
    piece = 0
    longest = 0
    padding = False
    for e in range(splits[row], splits[row + 1]):
        if length[e] == 0:
            continue
        if column > 0 and not goes_on(e, corpus, begin, length, document, flags):
            if used == len(edges):
                return -1, 0
            edges[used] = base + column
            used += 1
            longest = max(longest, column - piece)
            piece = column
        column += length[e]
        padding = flags[e] & PAD != 0
    if 0 < column < row_tokens and not padding:
        if used == len(edges):
            return -1, 0
        edges[used] = base + column
        used += 1
        longest = max(longest, column - piece)
        piece = column
    if used == len(edges):
        return -1, 0
    edges[used] = base + row_tokens
    return used + 1, max(longest, row_tokens - piece)


@kernel(f"int64(int64, int64, {_COLUMNS}, int32[:, ::1], int32[::1])")
def _row_edges(
    low: int, high: int, splits: Any, corpus: Any, begin: Any, length: Any, document: Any, flags: Any, row_tokens: int,
    edges: Any, longest: Any,
) -> int:  # fmt: skip
    for row in range(low, high):
        edges[row, 0] = 0
        used, most = of_row(
            row, splits, corpus, begin, length, document, flags, row_tokens, 0, edges[row], 1
        )  # fmt: skip
        if used < 0:
            return row
        for k in range(used, edges.shape[1]):
            edges[row, k] = row_tokens
        longest[row] = most
    return -1


@kernel(f"UniTuple(int64, 2)(int64, int64, {_COLUMNS}, int32[::1])")
def _batch_edges(
    low: int, high: int, splits: Any, corpus: Any, begin: Any, length: Any, document: Any, flags: Any, row_tokens: int,
    edges: Any,
) -> tuple[int, int]:  # fmt: skip
    edges[0] = 0
    used = 1
    longest = 0
    for row in range(low, high):
        used, most = of_row(
            row, splits, corpus, begin, length, document, flags, row_tokens, row * row_tokens, edges, used
        )  # fmt: skip
        if used < 0:
            return -1, 0
        longest = max(longest, most)
    return used, longest
