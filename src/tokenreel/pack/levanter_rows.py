"""Rows as Levanter gives them: tokens, loss weights, and segment ids from an EOS id or from packed documents.

An EOS belongs to the document that it ends, and a document that an earlier row began goes on as segment 0. The prediction
from EOS into the next document is trained, as there. Positions are not reset, and are therefore no array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import kernel, read_only

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from tokenreel.pack.policy import RowPolicy
    from tokenreel.spans import SpanTable

PAD = 16


def lay_out_levanter(
    table: SpanTable,
    policy: RowPolicy,
    row_tokens: int,
    arrays: Mapping[str, npt.NDArray[Any]],
    low: int,
    high: int,
) -> None:
    """Fill loss weights and segment ids of rows [low, high)."""
    segments = arrays["segment_ids"].reshape(-1) if policy.has_segments else np.empty(0, dtype=np.int32)
    _levanter_rows(
        low, high, table.splits, table.length, table.document, table.flags, row_tokens, policy.eod or 0, policy.packed,
        arrays["tokens"].reshape(-1), arrays["loss_weight"].reshape(-1), segments,
    )  # fmt: skip


_I64, _U8 = read_only("int64"), read_only("uint8")


def _signature(ids: str) -> str:
    return f"void(int64, int64, {_I64}, {_I64}, {_I64}, {_U8}, int64, int64, boolean, {ids}, float32[::1], int32[::1])"


@kernel(_signature("int32[::1]"), _signature("int64[::1]"))
def _levanter_rows(
    low: int, high: int, splits: Any, length: Any, document: Any, flags: Any, row_tokens: int, eos: int, packed: bool,
    tokens: Any, weights: Any, segments: Any,
) -> None:  # fmt: skip
    for row in range(low, high):
        at = row * row_tokens
        column = 0
        number = 0
        for e in range(splits[row], splits[row + 1]):
            if flags[e] & PAD:
                break
            for k in range(at + column, at + column + length[e]):
                weights[k] = 1.0
                if len(segments) > 0:
                    segments[k] = document[e] if packed else number
                    number += tokens[k] == eos
            column += length[e]
        for k in range(at + column, at + row_tokens):
            # Levanter's packing weights padding like any token.
            weights[k] = 1.0 if packed else 0.0
            if len(segments) > 0:
                segments[k] = -1
        last = row_tokens if packed else column
        if last > 0:
            weights[at + last - 1] = 0.0
