"""Rows as Megatron-Core's GPTDataset gives them, array for array.

Documents are told by their EOD id, as there, not by their edges: a corpus without EOD is never reset. Padding is told by the
pad id, so that a corpus that holds it loses those ids (they become 0 and are not trained). The one exception is
`inter_document_masking`, which goes by the entries of the index: here, by extents. Entries of no tokens leave no extent;
`edges_of_parts` takes them where the repeated edges that Megatron then writes are wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import kernel, read_only

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokenreel.pack.policy import RowPolicy
    from tokenreel.spans import SpanTable

AHEAD, PAD = 4, 16


def lay_out_megatron(
    table: SpanTable,
    policy: RowPolicy,
    row_tokens: int,
    row_ahead: int,
    arrays: Mapping[str, npt.NDArray[Any]],
    low: int,
    high: int,
) -> None:
    """Fill rows [low, high); tokens and labels hold stored ids and the pad id, which becomes 0 in both."""
    tokens = arrays["tokens"].reshape(-1)
    dense = arrays.get("attention_mask")
    attention = np.empty(0, dtype=np.uint8) if dense is None else dense.view(np.uint8).reshape(-1)
    no_eod = np.int64(1 << 40)
    _megatron_rows(
        low, high, row_tokens, no_eod if policy.eod is None else policy.eod, policy.pad_in_use,
        policy.reset_position_ids, bool(policy.reset_attention_mask), policy.eod_mask_loss, tokens,
        arrays["labels"].reshape(-1), arrays["loss_mask"].reshape(-1), arrays["position_ids"].reshape(-1), attention,
    )  # fmt: skip
    if policy.inter_document_masking:
        _parts(
            low, high, table.splits, table.length, table.flags, row_tokens, row_ahead, arrays["cu_seqlens"],
            arrays["max_seqlen"], arrays["position_ids"].reshape(-1),
        )  # fmt: skip


def edges_of_parts(parts: Sequence[int], row_tokens: int, row_ahead: int) -> npt.NDArray[np.int32]:
    """Return `cu_seqlens` of one sample from the tokens of its entries, look-ahead included, empty entries too.

    >>> edges_of_parts([2, 0, 3], row_tokens=4, row_ahead=1).tolist()
    [0, 2, 2, 4, 4]
    """
    lengths = list(parts)
    if row_ahead and lengths:
        lengths[-1] -= 1
        if lengths[-1] == 0:
            lengths.pop()
    short = row_tokens - sum(lengths)
    if lengths and short > 0:
        lengths[-1] += short
    elif short > 0:
        lengths = [short]
    edges = np.cumsum([0, *lengths])
    return np.concatenate((edges, np.full(row_tokens + 1 - len(edges), row_tokens))).astype(np.int32)


def _signature(ids: str) -> str:
    return f"void(int64, int64, int64, int64, int64, boolean, boolean, boolean, {ids}, {ids}, float32[::1], {ids}, uint8[::1])"


@kernel(_signature("int32[::1]"), _signature("int64[::1]"))
def _megatron_rows(  # noqa: PLR0913, PLR0917
    low: int, high: int, row_tokens: int, eod: int, pad: int, reset_positions: bool, reset_attention: bool,
    eod_mask: bool, tokens: Any, labels: Any, mask: Any, positions: Any, attention: Any,
) -> None:  # fmt: skip
    for row in range(low, high):
        at = row * row_tokens
        token = tokens[at : at + row_tokens]
        label = labels[at : at + row_tokens]
        place = positions[at : at + row_tokens]
        weight = mask[at : at + row_tokens]
        if reset_positions:
            count = 0
            for k in range(row_tokens):
                place[k] = count
                count = 0 if token[k] == eod else count + 1
        else:
            for k in range(row_tokens):
                place[k] = k
        if len(attention) > 0:
            begin = 0
            for i in range(row_tokens):
                line = attention[(at + i) * row_tokens : (at + i + 1) * row_tokens]
                for j in range(row_tokens):
                    line[j] = 0 if begin <= j <= i else 1
                if reset_attention and token[i] == eod:
                    begin = i + 1
        if eod_mask:
            for k in range(row_tokens):
                weight[k] = 0.0 if label[k] == pad or token[k] == eod else 1.0
        else:
            for k in range(row_tokens):
                weight[k] = 0.0 if label[k] == pad else 1.0
        for k in range(row_tokens):
            token[k] = 0 if token[k] == pad else token[k]
        for k in range(row_tokens):
            label[k] = 0 if label[k] == pad else label[k]


_I64, _U8 = read_only("int64"), read_only("uint8")


def _signature_of_parts(ids: str) -> str:
    return f"void(int64, int64, {_I64}, {_I64}, {_U8}, int64, int64, int32[:, ::1], int32[::1], {ids})"


@kernel(_signature_of_parts("int32[::1]"), _signature_of_parts("int64[::1]"))
def _parts(
    low: int, high: int, splits: Any, length: Any, flags: Any, row_tokens: int, row_ahead: int, edges: Any,
    longest: Any, positions: Any,
) -> None:  # fmt: skip
    for row in range(low, high):
        edge = edges[row]
        edge[0] = 0
        used = 1
        total = 0
        most = 0
        for e in range(splits[row], splits[row + 1]):
            if flags[e] & PAD:
                continue
            total += length[e] + (1 if flags[e] & AHEAD else 0)
            edge[used] = min(total, row_tokens)
            # A part that holds the look-ahead alone goes away with it.
            used += 1 if edge[used] > edge[used - 1] else 0
        if row_ahead and total <= row_tokens and used > 1:
            # A short sample gives its last token away as well.
            edge[used - 1] -= 1
            used -= 1 if edge[used - 1] == edge[used - 2] else 0
        used = max(used, 2)
        edge[used - 1] = row_tokens
        for k in range(used, row_tokens + 1):
            edge[k] = row_tokens
        for p in range(used - 1):
            place = positions[row * row_tokens + edge[p] : row * row_tokens + edge[p + 1]]
            for k in range(len(place)):
                place[k] = k
            most = max(most, edge[p + 1] - edge[p])
        longest[row] = most
