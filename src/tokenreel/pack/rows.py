"""Rows from extents: what stands where ids and labels are missing, and the arrays that go with them, policy by policy.

Ids and labels are written first, by whoever can read tokens; `lay_out` then fills everything else of rows [low, high), and
`finish` what belongs to the batch as a whole. All of it is pure: arrays in, arrays out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenreel.errors import RecipeError
from tokenreel.order.kernels import kernel, read_only

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from tokenreel.pack.policy import RowPolicy
    from tokenreel.spans import SpanTable

    Arrays = Mapping[str, npt.NDArray[Any]]

AHEAD, CUT, PAD = 4, 8, 16
"""Bits of `Flag`, as constants that are compiled in."""


def fills(policy: RowPolicy, row_ahead: int) -> tuple[int, int, int]:
    """Return the input of padding, the label where there is none, and 1 where the end of a cut extent has none.

    Raises `RecipeError` (RCP041) where a policy needs samples with a look-ahead, or without one.

    >>> from tokenreel.pack.policy import row_policy
    >>> fills(row_policy({"kind": "megatron", "eod": 0, "pad": 5}), 1)
    (5, 5, 0)
    """
    if policy.kind in ("plain", "documents"):
        return policy.pad_id, policy.ignore_index, 1
    if policy.kind == "megatron":
        return policy.pad_in_use, policy.pad_in_use, 0
    if policy.kind == "maxtext":
        if policy.direct == bool(row_ahead):
            expected = "direct = true with row_ahead = 0, or direct = false with row_ahead = 1"
            found = f"direct = {str(policy.direct).lower()}, row_ahead = {row_ahead}"
            raise RecipeError(
                "RCP041", "row_policy: maxtext", expected=expected, found=found, hint="tokenreel schema run"
            )
        return policy.eod or 0, policy.eod or 0, 0
    return 0, 0, 0


def lay_out(
    table: SpanTable, policy: RowPolicy, row_tokens: int, row_ahead: int, arrays: Arrays, low: int, high: int
) -> None:
    """Fill all arrays of rows [low, high) but those that hold ids and labels, which are there already.

    For `documents`, and for `levanter` with `packed`, every extent of the table lies in one document.
    """
    if policy.kind == "plain":
        if policy.loss_mask:
            _plain_mask(low, high, table.splits, table.length, table.flags, row_tokens, arrays["loss_mask"].reshape(-1))
    elif policy.kind == "documents":
        from tokenreel.pack.rows_documents import lay_out_documents

        lay_out_documents(table, policy, row_tokens, arrays, low, high)
    elif policy.kind == "megatron":
        from tokenreel.pack.megatron_rows import lay_out_megatron

        lay_out_megatron(table, policy, row_tokens, row_ahead, arrays, low, high)
    elif policy.kind == "maxtext":
        from tokenreel.pack.maxtext_rows import lay_out_maxtext

        lay_out_maxtext(table, policy, row_tokens, arrays, low, high)
    else:
        from tokenreel.pack.levanter_rows import lay_out_levanter

        lay_out_levanter(table, policy, row_tokens, arrays, low, high)


def finish(table: SpanTable, policy: RowPolicy, row_tokens: int, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Fill what belongs to the whole batch: the edges of all rows end to end."""
    if policy.kind == "documents" and policy.cu_seqlens == "batch":
        from tokenreel.pack.cu_seqlens import batch_edges

        arrays["cu_seqlens"] = batch_edges(table, policy, row_tokens, arrays["cu_seqlens"], arrays["max_seqlen"])


@kernel(f"void(int64, int64, {read_only('int64')}, {read_only('int64')}, {read_only('uint8')}, int64, float32[::1])")
def _plain_mask(low: int, high: int, splits: Any, length: Any, flags: Any, row_tokens: int, mask: Any) -> None:
    for row in range(low, high):
        at = row * row_tokens
        column = 0
        labelled = False
        for e in range(splits[row], splits[row + 1]):
            real = flags[e] & PAD == 0
            if column > 0 and not real:
                mask[at + column - 1] = 0.0
            for k in range(at + column, at + column + length[e]):
                mask[k] = 1.0 if real else 0.0
            column += length[e]
            labelled = flags[e] & AHEAD != 0
            if column > 0 and flags[e] & CUT and not labelled:
                mask[at + column - 1] = 0.0
        if column > 0 and not labelled:
            mask[at + column - 1] = 0.0
        for k in range(at + column, at + row_tokens):
            mask[k] = 0.0
