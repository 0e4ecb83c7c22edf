"""Rows whose documents are kept apart: loss mask, positions and segment ids from extents and the ends of documents.

A *piece* is a run of one document's tokens in a row: extents that go on where the one before ended are one piece. The
label at a piece's end is real where the sample goes on with the next token of that document: across the row's edge by the
look-ahead. At the true end of a document it is what the policy says; where a document was cut it is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.order.kernels import inlined, kernel, read_only

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from tokenreel.pack.policy import RowPolicy
    from tokenreel.spans import SpanTable

TAIL, AHEAD, CUT, PAD = 2, 4, 8, 16
MASK, NEXT, TOKEN = 0, 1, 2
RESET, RUNNING, OFFSET = 0, 1, 2
_I64, _I32, _U8 = read_only("int64"), read_only("int32"), read_only("uint8")


def lay_out_documents(
    table: SpanTable,
    policy: RowPolicy,
    row_tokens: int,
    arrays: Mapping[str, npt.NDArray[Any]],
    low: int,
    high: int,
) -> None:
    """Fill rows [low, high): labels at ends of pieces, mask, positions, segment ids, edges and dense masks."""
    base, pad = (1, 0) if policy.segments == "one" else (0, -1)
    segments = arrays["segment_ids"].reshape(-1)
    _document_rows(
        low, high, table.splits, table.corpus, table.begin, table.length, table.document, table.start, table.flags,
        row_tokens, ("reset", "running", "offset").index(policy.positions), base, pad,
        ("mask", "next", "token").index(policy.ends), policy.end_id or 0, policy.ignore_index,
        arrays["labels"].reshape(-1), arrays["loss_mask"].reshape(-1), arrays["position_ids"].reshape(-1), segments,
    )  # fmt: skip
    if policy.cu_seqlens == "rows":
        from tokenreel.pack.cu_seqlens import row_edges

        row_edges(table, arrays["cu_seqlens"], arrays["max_seqlen"], row_tokens, low, high)
    if policy.attention != "none":
        from tokenreel.pack.masks import dense

        dense(arrays["segment_ids"], arrays[f"attention_{policy.attention}"], low, high)


@inlined
def goes_on(e: int, corpus: Any, begin: Any, length: Any, document: Any, flags: Any) -> Any:
    """Return whether extent `e` is the same piece as the one before it."""
    return (
        corpus[e] == corpus[e - 1]
        and document[e] == document[e - 1]
        and begin[e] == begin[e - 1] + length[e - 1]
        and flags[e - 1] & (CUT | PAD) == 0
    )


def _signature(ids: str) -> str:
    return (
        f"void(int64, int64, {_I64}, {_I32}, {_I64}, {_I64}, {_I64}, {_I64}, {_U8}, int64, int64, int64, int64, "
        f"int64, int64, int64, {ids}, float32[::1], {ids}, int32[::1])"
    )


@inlined
def close(e: int, at: int, follows: Any, ends: int, end_id: int, none: int, flags: Any, labels: Any, mask: Any) -> None:
    """Set label and mask at the end of a piece; `follows` says that a label was copied there."""
    true_end = flags[e] & TAIL != 0 and flags[e] & CUT == 0
    if true_end and ends == TOKEN:
        labels[at] = end_id
    elif not (true_end and ends == NEXT and follows):
        labels[at] = none
        mask[at] = 0.0


@kernel(_signature("int32[::1]"), _signature("int64[::1]"))
def _document_rows(  # noqa: PLR0913, PLR0917
    low: int, high: int, splits: Any, corpus: Any, begin: Any, length: Any, document: Any, start: Any, flags: Any,
    row_tokens: int, counting: int, base: int, pad: int, ends: int, end_id: int, none: int, labels: Any, mask: Any,
    positions: Any, segments: Any,
) -> None:  # fmt: skip
    for row in range(low, high):
        at = row * row_tokens
        column = 0
        segment = base - 1
        counted = 0
        last = -1
        for e in range(splits[row], splits[row + 1]):
            count = length[e]
            if flags[e] & PAD:
                if last >= 0:
                    close(last, at + column - 1, False, ends, end_id, none, flags, labels, mask)
                    last = -1
                _pad(at + column, count, column, counting, pad, mask, positions, segments)
                column += count
                continue
            same = last >= 0 and goes_on(e, corpus, begin, length, document, flags)
            if not same:
                if last >= 0:
                    close(last, at + column - 1, flags[last] & CUT == 0, ends, end_id, none, flags, labels, mask)
                if count == 0:
                    # The look-ahead of another document: what it is a label of is closed.
                    last = -1
                    continue
                segment += 1
                counted = 0
            first = counted
            if counting == OFFSET:
                first = start[e]
            elif counting == RUNNING:
                first = column
            place = positions[at + column : at + column + count]
            number = segments[at + column : at + column + count]
            weight = mask[at + column : at + column + count]
            for k in range(count):
                place[k] = first + k
            for k in range(count):
                number[k] = segment
            for k in range(count):
                weight[k] = 1.0
            counted += count
            column += count
            last = e
        if last >= 0:
            ahead = flags[last] & AHEAD != 0
            if not ahead or flags[last] & TAIL:
                close(last, at + column - 1, ahead, ends, end_id, none, flags, labels, mask)
        _pad(at + column, row_tokens - column, column, counting, pad, mask, positions, segments)


@inlined
def _pad(
    at: int, count: int, column: int, counting: int, pad: int, mask: Any, positions: Any, segments: Any
) -> None:  # fmt: skip
    for k in range(count):
        mask[at + k] = 0.0
        segments[at + k] = pad
        positions[at + k] = column + k if counting == RUNNING else 0
