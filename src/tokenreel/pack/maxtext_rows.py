"""Rows as MaxText's Grain pipeline gives them for ``mmap_npy`` and, with `direct`, for ``mmap``.

Segments end with the EOD id, and `packing_max_segments_per_sample` joins short ones: a boundary stays only where more than
``row_tokens // packing_max_segments_per_sample`` tokens lie between it and the last one that stayed. A direct row has no
look-ahead: EOD stands where its last target would, and nothing that predicts EOD counts. Where a sample is shorter than its
row, segments and positions are 0; MaxText writes EOD there too, and then trains on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.order.kernels import kernel, read_only

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from tokenreel.pack.policy import RowPolicy
    from tokenreel.spans import SpanTable

AHEAD, PAD = 4, 16


def lay_out_maxtext(
    table: SpanTable,
    policy: RowPolicy,
    row_tokens: int,
    arrays: Mapping[str, npt.NDArray[Any]],
    low: int,
    high: int,
) -> None:
    """Fill segmentation and positions of rows [low, high)."""
    names = ("inputs", "targets", "inputs_segmentation", "targets_segmentation", "inputs_position", "targets_position")
    reset = bool(policy.reset_attention_mask)
    most = policy.packing_max_segments_per_sample
    joined = row_tokens // most if reset and most > 0 else 0
    _maxtext_rows(
        low, high, table.splits, table.length, table.flags, row_tokens, policy.eod or 0, reset, policy.eod_mask_loss,
        joined, policy.direct, *(arrays[name].reshape(-1) for name in names),
    )  # fmt: skip


_I64, _U8 = read_only("int64"), read_only("uint8")


def _signature(ids: str) -> str:
    return (
        f"void(int64, int64, {_I64}, {_I64}, {_U8}, int64, int64, boolean, boolean, int64, boolean, "
        + ", ".join([ids] * 6)
        + ")"
    )


@kernel(_signature("int32[::1]"), _signature("int64[::1]"))
def _maxtext_rows(  # noqa: PLR0913, PLR0917
    low: int, high: int, splits: Any, length: Any, flags: Any, row_tokens: int, eod: int, reset: bool, eod_mask: bool,
    joined: int, direct: bool, inputs: Any, targets: Any, input_segments: Any, target_segments: Any,
    input_positions: Any, target_positions: Any,
) -> None:  # fmt: skip
    for row in range(low, high):
        at = row * row_tokens
        token = inputs[at : at + row_tokens]
        target = targets[at : at + row_tokens]
        segment = input_segments[at : at + row_tokens]
        counted = target_segments[at : at + row_tokens]
        place = input_positions[at : at + row_tokens]
        place_of_target = target_positions[at : at + row_tokens]
        real = 0
        labelled = 0
        for e in range(splits[row], splits[row + 1]):
            if flags[e] & PAD:
                break
            real += length[e]
            labelled = real if flags[e] & AHEAD else real - 1
        number = 1
        position = 0
        kept = 0
        for k in range(real):
            segment[k] = number
            place[k] = position
            position += 1
            if reset and token[k] == eod and (joined <= 1 or k + 1 - kept > joined):
                number += 1
                position = 0
                kept = k + 1
        if direct and not reset and eod_mask:
            for k in range(real):
                segment[k] = 0 if token[k] == eod else 1
        if direct:
            for k in range(real - 1):
                counted[k] = 0 if target[k] == eod else segment[k + 1]
            if real > 0:
                counted[real - 1] = 0
        else:
            for k in range(real):
                counted[k] = 0 if k >= labelled or (eod_mask and token[k] == eod) else 1
        for k in range(real, row_tokens):
            segment[k] = 0
            counted[k] = 0
            place[k] = 0
        for k in range(row_tokens):
            place_of_target[k] = place[k]
